// The page: environments as views, everything of one environment at a time.

async function unpack(id) {
  const bytes = Uint8Array.from(atob(document.getElementById(id).textContent), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

function themeButton() {
  const button = h("button", { title: "light or dark", onclick: () => {
    const now = document.documentElement.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
    document.documentElement.dataset.theme = now === "dark" ? "light" : "dark";
  } }, "◐");
  button.setAttribute("aria-label", "switch between light and dark");
  return button;
}

async function start() {
  const page = document.getElementById("page");
  const summary = JSON.parse(document.getElementById("summary").textContent);
  const data = await unpack("trajectories");
  summary.families.forEach((family, index) => { family.index = index; });
  const environments = [...new Set(summary.runs.map((run) => run.environment))];
  const linked = summary.runs.find((run) => run.run === fragment().run);
  let environment = linked ? linked.environment : environments[0];
  const main = h("main", {});
  const links = [["results", "Results"], ["curves", "Curves"], ["collapse", "Collapse"], ["suites", "Suites"], ["trajectories", "Trajectories"], ["sides", "Side by side"], ["cost", "Cost"], ["runs", "Runs"]];
  const jump = (id) => (event) => { event.preventDefault(); document.getElementById(id).scrollIntoView(); };
  function draw() {
    const families = summary.families.filter((family) => family.environment === environment);
    const runs = summary.runs.filter((run) => run.environment === environment);
    const choice = environments.length > 1 ? h("div", { class: "controls" }, select("environment", environments.map((each) => [each, each]), environment, (value) => { environment = value; draw(); })) : null;
    swap(main, h("h1", {}, summary.name === "report" ? environment : summary.name),
      h("p", { class: "lead" }, `${runs.length} run${runs.length > 1 ? "s" : ""} on ${environment}: ${families.map((family) => `${family.label} with ${family.runs.length} seed${family.runs.length > 1 ? "s" : ""}`).join(", ")}.`),
      choice, results(summary, families), curves(summary, families), collapses(summary, runs), suites(summary, runs),
      browser(data, runs), sides(data, runs, summary), costs(summary, runs), about(runs, summary.repeated),
      h("footer", {}, "One file; nothing is loaded from elsewhere."));
  }
  swap(page, h("div", { class: "bar" }, h("div", { class: "bar-inner" }, h("strong", {}, "starpo"),
    h("nav", {}, links.map(([id, text]) => h("a", { href: `#${id}`, onclick: jump(id) }, text))), themeButton())), main);
  draw();
  if (location.hash && document.getElementById(linked ? "trajectories" : location.hash.slice(1))) document.getElementById(linked ? "trajectories" : location.hash.slice(1)).scrollIntoView();
  document.documentElement.dataset.ready = "yes";
}

start().catch((error) => {
  const page = document.getElementById("page");
  swap(page, h("main", {}, h("h1", {}, "This page could not be drawn"), h("pre", {}, String(error)), h("p", {}, "It needs a browser of 2023 or later (DecompressionStream).")));
  throw error;
});

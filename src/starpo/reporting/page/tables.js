// Results, other suites, collapse, cost.

function table(columns, rows, classOf) {
  const head = h("tr", {}, columns.map((column) => h("th", { class: column.text ? "text" : null, title: column.title }, column.name)));
  const body = rows.map((row) => h("tr", { class: classOf ? classOf(row) : null },
    columns.map((column) => h("td", { class: [column.text && "text", column.kind].filter(Boolean).join(" ") || null }, column.cell(row)))));
  return h("div", { class: "scroll", tabindex: "0" }, h("table", {}, h("thead", {}, head), h("tbody", {}, body)));
}

const interval = (row, name) => (row[`${name}_low`] === undefined || row[`${name}_low`] === null ? null
  : h("small", {}, ` ${percent(row[`${name}_low`])} to ${percent(row[`${name}_high`])}`));

function differenceCell(row, name) {
  const [low, high] = [row[`${name}_low`], row[`${name}_high`]];
  const kind = low > 0 ? "good" : high < 0 ? "bad" : null;
  const bounds = low === undefined || low === null ? null : h("small", {}, ` ${signed(low)} to ${signed(high)}`);
  return [h("span", { class: kind }, signed(row[name])), bounds];
}

function forest(row) {
  const x = (value) => 8 + value * 204;
  const mark = (name, kind, at) => [
    row[`${name}_low`] === undefined || row[`${name}_low`] === null ? null
      : s("line", { class: "whisker", x1: x(row[`${name}_low`]), x2: x(row[`${name}_high`]), y1: at, y2: at }),
    s("circle", { class: kind, r: 4, cx: x(row[name]), cy: at }),
  ];
  return s("svg", { viewBox: "0 0 220 28", class: colour(row.family), role: "img", "aria-label": `${percent(row.success_before)} to ${percent(row.success_after)} per cent` },
    [0, 0.5, 1].map((at) => s("line", { class: "grid", x1: x(at), x2: x(at), y1: 1, y2: 27 })),
    mark("success_before", "before", 9), mark("success_after", "after", 19));
}

function results(summary, families) {
  const indices = new Set(families.map((family) => family.index));
  const rows = summary.final.filter((row) => indices.has(row.family))
    .sort((one, other) => one.suite.localeCompare(other.suite) || one.temperature - other.temperature || one.family - other.family);
  const label = (index) => [h("i", { class: `swatch ${colour(index)}` }), " ", summary.families[index].label];
  const columns = [
    { name: "suite", text: true, cell: (row) => row.suite },
    { name: "T", title: "sampling temperature", cell: (row) => number(row.temperature) },
    { name: "pipeline", text: true, cell: (row) => label(row.family) },
    { name: "seed", text: true, cell: (row) => (row.run === null ? `mean of ${row.seeds}` : row.seed) },
    { name: "prompts", cell: (row) => number(row.prompts) },
    { name: "before, %", cell: (row) => [percent(row.success_before), interval(row, "success_before")] },
    { name: "after, %", cell: (row) => [percent(row.success_after), interval(row, "success_after")] },
    { name: "difference, points", cell: (row) => differenceCell(row, "success_difference") },
    { name: "0 % ○ before ● after 100 %", kind: "forest", cell: forest },
  ];
  const found = rows.length ? table(columns, rows, (row) => (row.run === null ? "mean" : null))
    : h("p", {}, "No run has compared its first and last policy yet; that happens when a run ends.");
  const between = summary.differences.filter((row) => indices.has(row.of));
  const other = between.length ? [
    h("h3", {}, "Between pipelines"),
    h("p", { class: "note" }, "Success of the last policies, paired by seed. Interval over seeds, from three on."),
    table([
      { name: "suite", text: true, cell: (row) => row.suite },
      { name: "T", cell: (row) => number(row.temperature) },
      { name: "pipeline", text: true, cell: (row) => label(row.of) },
      { name: "minus", text: true, cell: (row) => label(row.minus) },
      { name: "seeds", cell: (row) => row.seeds },
      { name: "difference, points", cell: (row) => differenceCell(row, "difference") },
    ], between),
  ] : null;
  return section("results", "Results",
    "Success of the first and the last policy on held-out prompts, with 95 % intervals. Differences are paired: same prompts, same luck. Rows of means: interval over seeds.",
    found, other);
}

function suites(summary, runs) {
  const names = new Set(runs.map((run) => run.run));
  const rows = summary.suites.filter((row) => names.has(row.policy.split("@")[0]));
  if (!rows.length) {
    return section("suites", "Other suites", "Floor and optimum, other tasks, and what failures are put down to.",
      h("p", {}, "Nothing yet: ", h("code", {}, "kedro run --pipeline=evaluate --params run.source=RUN@latest"), " plays the generalisation suites of a policy, and the next report shows them."));
  }
  const failing = [...new Set(rows.flatMap((row) => Object.keys(row).filter((key) => key.startsWith("failures.") && row[key] > 0)))];
  return section("suites", "Other suites", "What kedro run --pipeline=evaluate found: between random play and the optimum, and shares of trajectories by the label of their failure.",
    table([
      { name: "policy", text: true, cell: (row) => row.policy },
      { name: "suite", text: true, cell: (row) => row.suite },
      { name: "T", cell: (row) => number(row.temperature) },
      { name: "prompts", cell: (row) => number(row.prompts) },
      { name: "success, %", cell: (row) => [h("span", { class: row.success_low > (row.floor_success ?? 0) ? null : "warn" }, percent(row.success)), interval(row, "success")] },
      { name: "floor", title: "random play", cell: (row) => percent(row.floor_success) },
      { name: "optimum", cell: (row) => percent(row.optimum_success) },
      { name: "of optimum", cell: (row) => percent(row.success_of_optimum) },
      { name: "return", cell: (row) => number(row.return) },
      { name: "words per thought", cell: (row) => number(row.thought_words_mean) },
      { name: "variety", title: "1 - likeness of thoughts about different prompts", cell: (row) => percent(row.thought_variety) },
      { name: "likeness", title: "of thoughts about different prompts, but for names and numbers", cell: (row) => percent(row.thought_template_similarity) },
      { name: "repetition", title: "word pairs of a thought that it held before", cell: (row) => percent(row.thought_repetition) },
      ...failing.map((key) => ({ name: key.slice(9).replaceAll("_", " "), cell: (row) => percent(row[key]) })),
    ], rows));
}

function collapses(summary, runs) {
  const names = new Set(runs.map((run) => run.run));
  const cards = summary.collapse.filter((each) => names.has(each.run)).map((each) => {
    const total = each.last - each.first + 1;
    const rows = Object.entries(each.spans).filter(([name, spans]) => name === "run" || spans.some((span) => span[2] !== "quiet"));
    const strips = rows.map(([name, spans]) => [
      h("span", { class: `name ${name === "run" ? "run" : ""}`, title: name }, name === "run" ? "verdict" : name.replaceAll("_", " ")),
      h("div", { class: "track", title: spans.map((span) => `${span[0]}–${span[1]} ${span[2]}`).join(", ") },
        spans.map(([from, to, stage]) => h("i", { class: stage, style: { width: `${(100 * (to - from + 1)) / total}%` } }))),
    ]);
    const verdict = { quiet: ["good", "quiet"], warning: ["warn", "warning"], alarm: ["bad", "alarm"] }[each.verdict];
    const lead = Object.entries(each.lead_times).filter(([, value]) => value !== null).map(([name, value]) => `${name.replaceAll("_", " ")} ${value}`);
    return h("div", { class: "card" }, h("h3", {}, each.run),
      h("p", {}, "At the end: ", h("b", { class: verdict[0] }, verdict[1]), each.alarm === null ? ", never in alarm" : `, first alarm at iteration ${each.alarm}`, "."),
      h("div", { class: "strip" }, strips),
      lead.length ? h("p", { class: "note" }, `Iterations of warning before success fell: ${lead.join(", ")}.`) : null,
      each.events.length ? h("details", {}, h("summary", {}, `${each.events.length} events`), h("pre", {}, each.events.join("\n"))) : null);
  });
  return section("collapse", "Collapse", "The Echo Trap monitor, replayed over the stored metrics: each indicator against the run's own first iterations. Healthy learning also lowers entropy and spread; only the verdict says that something is wrong.",
    h("div", {}, ["quiet", "warning", "alarm"].map((stage) => h("span", { class: "key" }, h("i", { class: stage }), stage))),
    h("div", { class: "cards" }, cards));
}

const PHASES = { rollout: 0, update: 1, sync: 2, reward: 3, filter: 4, other: 7 };

function costs(summary, runs) {
  const names = new Set(runs.map((run) => run.run));
  const rows = summary.costs.filter((row) => names.has(row.run));
  const longest = Math.max(...rows.map((row) => row.seconds_total || 0)) || 1;
  const bar = (row) => h("div", { class: "stack", style: { width: `${(100 * (row.seconds_total || 0)) / longest}%` }, title: Object.entries(row.seconds).map(([name, value]) => `${name} ${duration(value)}`).join(", ") },
    Object.entries(PHASES).map(([name, index]) => h("i", { class: colour(index), style: { width: `${(100 * row.seconds[name]) / (row.seconds_total || 1)}%` } })));
  return section("cost", "Time and tokens", "Wall-clock time of iterations, evaluations and start-up not counted; repeated iterations count again.",
    h("div", {}, Object.entries(PHASES).map(([name, index]) => h("span", { class: `key ${colour(index)}` }, h("i", { style: { background: "var(--colour)" } }), name))),
    table([
      { name: "run", text: true, cell: (row) => row.run },
      { name: "iterations", cell: (row) => row.iterations },
      { name: "time", cell: (row) => duration(row.seconds_total) },
      { name: "per iteration", cell: (row) => (row.iterations ? `${number(row.seconds_total / row.iterations, 1)} s` : "–") },
      { name: "where", text: true, cell: bar },
      { name: "tokens sampled", cell: (row) => number(row.sampled_tokens) },
      { name: "trained on", cell: (row) => number(row.trained_tokens) },
      { name: "in evaluations", cell: (row) => number(row.evaluation_tokens) },
      { name: "tokens/s", title: "sampled tokens per second of rollout", cell: (row) => number(row.tokens_per_second, 0) },
    ], rows));
}

function about(runs, repeated) {
  return section("runs", "Runs", "What this page was made from.", repeated.length ? h("p", { class: "note" }, `Left out, because a longer run has the same parameters and seed: ${repeated.join(", ")}.`) : null, table([
    { name: "run", text: true, cell: (row) => row.run },
    { name: "pipeline", text: true, cell: (row) => row.pipeline },
    { name: "environment", text: true, cell: (row) => row.environment },
    { name: "seed", cell: (row) => row.seed },
    { name: "state", text: true, cell: (row) => row.state },
    { name: "iterations", cell: (row) => row.iterations },
    { name: "lost files", text: true, cell: (row) => row.lost.join(", ") || "none" },
    { name: "first started", text: true, cell: (row) => row.created },
    { name: "commit", text: true, cell: (row) => row.commit },
  ], runs));
}

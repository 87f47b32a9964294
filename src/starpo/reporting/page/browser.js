// The trajectory browser and the same prompt under several policies.

function fragment() {
  return Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
}

function browser(data, runs) {
  const names = new Set(runs.map((run) => run.run));
  const sampled = data.runs.filter((run) => names.has(run.run) && run.iterations.length);
  const root = section("trajectories", "Trajectories",
    "Sampled training trajectories, token by token. Groups of an iteration go from the highest to the lowest spread of returns; hover or focus a token for its numbers.");
  if (!sampled.length) return fill(root, {}, [h("p", {}, "No run has rollouts yet.")]);
  const controls = h("div", { class: "controls" }), place = h("div", { id: "trajectory" });
  const wanted = fragment();
  const state = { run: sampled[0].run, iteration: null, group: null, member: null, kind: "advantages", context: true };
  for (const key of ["run", "iteration", "group", "member", "kind"]) if (wanted[key] !== undefined) state[key] = wanted[key];
  const pick = (list, key, value) => list.find((each) => String(each[key]) === String(value));

  function draw(remember) {
    const run = pick(sampled, "run", state.run) || sampled[0];
    const iteration = pick(run.iterations, "iteration", state.iteration) || run.iterations[0];
    const group = pick(iteration.groups, "group", state.group) || iteration.groups[0];
    const member = pick(group.members, "member", state.member) || group.members[0];
    Object.assign(state, { run: run.run, iteration: iteration.iteration, group: group.group, member: member.member });
    const change = (key) => (value) => { state[key] = value; draw(true); };
    swap(controls,
      select("run", sampled.map((each) => [each.run, shortName(each.run)]), run.run, change("run")),
      select("iteration", run.iterations.map((each) => [each.iteration, each.iteration]), iteration.iteration, change("iteration")),
      select(`group (${iteration.groups.length} of ${iteration.of})`, iteration.groups.map((each) => [each.group, `${each.group}: spread ${number(each.std)}, mean ${number(each.mean)}`]), group.group, change("group")),
      select("colour", Object.entries(KINDS), state.kind, change("kind")),
      h("button", { "aria-pressed": state.context, onclick: () => { state.context = !state.context; draw(); } }, "context tokens"));
    swap(place, groupView(run, group, member, state, change("member")));
    if (remember) {
      const { run: name, iteration: at, group: prompt, member: one, kind } = state;
      history.replaceState(null, "", `#${new URLSearchParams({ run: name, iteration: at, group: prompt, member: one, kind })}`);
    }
  }
  draw(false);
  return fill(root, {}, [controls, place]);
}

function groupView(run, group, member, state, choose) {
  const scale = scaleOf(member.turns, state.kind);
  const trained = member.turns.some((turn) => turn.advantages);
  const members = group.members.map((each) => h("button", { "aria-pressed": each.member === member.member, onclick: () => choose(each.member) },
    `${each.member}: ${number(each.return)} `, h("span", { class: each.success ? "good" : "bad" }, each.success ? "✓" : "✗")));
  const missing = (state.kind === "advantages" || state.kind === "values") && !trained
    ? h("p", { class: "note" }, `No ${state.kind} here: this trajectory was not learned from (${member.kept ? "the update left nothing about it" : member.reason}), so no update saw it. Choose log-prob as colour.`) : null;
  return [
    h("div", { class: "members", role: "group", "aria-label": "members of the group" }, members),
    h("div", { class: "facts" },
      h("span", {}, "environment ", h("b", {}, group.environment)), h("span", {}, "return ", h("b", {}, number(member.return))),
      h("span", {}, h("b", { class: member.success ? "good" : "bad" }, member.success ? "solved" : "not solved")), h("span", {}, "ended by ", h("b", {}, member.stop.replaceAll("_", " "))),
      h("span", {}, "learned from: ", h("b", {}, member.kept ? "yes" : `no (${member.reason.replaceAll("_", " ")})`)), legendOf(scale)),
    missing,
    Object.keys(run.vocabulary).length ? null : h("p", { class: "note" }, "No policy of this run keeps its tokenizer; tokens are shown by their ids."),
    member.turns.map((turn, index) => turnCard(turn, index, index === member.turns.length - 1, run.vocabulary, scale, { context: state.context })),
  ];
}

function sides(data, runs, summary) {
  const names = new Set(runs.map((run) => run.run));
  const found = data.sides.filter((side) => names.has(side.run) && side.prompts.length);
  const root = section("sides", "Same prompt, several policies",
    "The first, the best and the last evaluated policy of a run on the same prompt with the same luck. Prompts on which they fare differently are over-represented on purpose.");
  if (!found.length) return fill(root, {}, [h("p", {}, "No run has evaluated two policies on one suite yet.")]);
  const controls = h("div", { class: "controls" }), place = h("div", { class: "side", id: "side" });
  const alarms = new Set(summary.collapse.filter((each) => each.verdict === "alarm").map((each) => each.run));
  const state = { run: found[0].run, prompt: null, context: false };
  function draw() {
    const side = found.find((each) => each.run === state.run);
    const at = Math.max(0, side.prompts.findIndex((each) => String(each) === String(state.prompt)));
    const outcome = (index) => side.policies.map((policy) => (policy.prompts[index].success ? "✓" : "✗")).join(" ");
    const move = (step) => { state.prompt = side.prompts[(at + step + side.prompts.length) % side.prompts.length]; draw(); };
    swap(controls,
      select("run", found.map((each) => [each.run, shortName(each.run)]), side.run, (value) => { state.run = value; draw(); }),
      select(`prompt of ${side.suite}`, side.prompts.map((each, index) => [each, `${each}: ${outcome(index)}`]), side.prompts[at], (value) => { state.prompt = value; draw(); }),
      h("button", { onclick: () => move(-1) }, "previous"), h("button", { id: "next-prompt", onclick: () => move(1) }, "next"), legendOf(scaleOf([], "logprobs")));
    swap(place, side.policies.map((policy) => {
      const one = policy.prompts[at];
      const role = policy.role === "last" && alarms.has(side.run) ? "last (collapsed)" : policy.role;
      return h("div", { class: "card" }, h("header", {}, h("b", {}, role), h("span", { class: "note" }, `policy ${policy.step}, ${percent(policy.success)} % of the suite`),
        h("b", { class: one.success ? "good" : "bad" }, one.success ? "solved" : "not solved"), h("span", { class: "note" }, `return ${number(one.return)}, ${one.stop.replaceAll("_", " ")}`)),
        one.turns.map((turn, index) => turnCard(turn, index, index === one.turns.length - 1, side.vocabulary, scaleOf([turn], "logprobs"), { context: false })));
    }));
  }
  draw();
  return fill(root, {}, [controls, place]);
}

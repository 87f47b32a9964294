// A trajectory turn by turn: board, thought, answer, reward, tokens.

const CELLS = {
  "#": ["#4a5462", "#4a5462"], W: ["#4a5462", "#4a5462"], P: ["#2f6fe0", "#ffffff"], S: ["#2f6fe0", "#ffe08a"], A: ["#2f6fe0", "#ffffff"], "@": ["#2f6fe0", "#ffe08a"],
  G: ["#2c9c68", "#ffffff"], "√": ["#2c9c68", "#ffffff"], O: ["#bcd3f2", "#1d3c66"], X: ["#c9772b", "#ffffff"], B: ["#c9772b", "#ffffff"], C: ["#2c9c68", "#ffffff"],
};

// The name of a run without the part that all training runs share.
const shortName = (run) => run.replace(/^train_/, "");

// The board takes `rows` = [first, count] of the lines; blanks stand between its cells or nowhere. Around it is text.
function splitBoard(text, rows) {
  if (!rows) return { before: text, board: null, after: "" };
  const lines = text.split("\n"), [from, count] = rows, to = from + count;
  const board = lines.slice(from, to).map((line) => [...line.replaceAll(" ", "")]);
  return { before: lines.slice(0, from).join("\n").trim(), board, after: lines.slice(to).join("\n").trim() };
}

function cellStyle(symbol) {
  if ("_.".includes(symbol)) return {};
  if (CELLS[symbol]) return { "--cell": CELLS[symbol][0], "--ink": CELLS[symbol][1] };
  const hue = (symbol.codePointAt(0) * 137) % 360;
  return { "--cell": `hsl(${hue} 45% 72%)`, "--ink": "#111" };
}

function observation(text, rows) {
  const { before, board, after } = splitBoard(text, rows);
  if (board === null) return h("pre", {}, text);
  const grid = h("div", { class: `board ${board.length > 7 ? "small" : ""}`, role: "img", "aria-label": board.map((row) => row.join("")).join("\n"), style: { "grid-template-columns": `repeat(${board[0].length}, auto)` } },
    board.flatMap((row) => row.map((cell) => h("span", { style: cellStyle(cell) }, "_.".includes(cell) ? "" : cell))));
  return [before ? h("pre", {}, before) : null, grid, after ? h("pre", {}, after) : null];
}

const KINDS = { advantages: "advantage", logprobs: "log-prob", values: "value", none: "no colour" };

// Advantages and values diverge around 0; log-probs deepen with surprise, from 0 to -5 nats.
function scaleOf(turns, kind) {
  if (kind === "none") return null;
  if (kind === "logprobs") return { kind, top: 5, legend: ["0", "−5 nats"], bar: "linear-gradient(90deg, rgba(var(--surprise), 0), rgba(var(--surprise), .8))", paint: (value) => `rgba(var(--surprise), ${(0.8 * Math.min(1, -value / 5)).toFixed(3)})` };
  const values = turns.flatMap((turn) => turn[kind] || []);
  if (!values.length) return null;
  const top = Math.max(1e-9, ...values.map((value) => Math.abs(value ?? 0)));
  return {
    kind, top, legend: [number(-top, 2), `+${number(top, 2)}`],
    bar: "linear-gradient(90deg, rgba(var(--negative), .8), rgba(var(--negative), 0), rgba(var(--positive), 0), rgba(var(--positive), .8))",
    paint: (value) => `rgba(var(${value < 0 ? "--negative" : "--positive"}), ${(0.8 * Math.min(1, Math.abs(value) / top)).toFixed(3)})`,
  };
}

const legendOf = (scale) => (scale === null ? null : h("span", { class: "scale" }, scale.legend[0], h("i", { style: { background: scale.bar } }), scale.legend[1]));

function tokenText(vocabulary, id) {
  const text = vocabulary[id];
  return text === undefined ? `⟨${id}⟩` : text;
}

function tokens(turn, vocabulary, scale, context) {
  const before = context && turn.context ? turn.context.map((id) => h("span", { class: "t context", title: `context, id ${id}` }, tokenText(vocabulary, id))) : [];
  const sampled = turn.ids.map((id, index) => {
    const value = scale === null || !turn[scale.kind] ? null : turn[scale.kind][index];
    const text = tokenText(vocabulary, id);
    const detail = () => [
      `${JSON.stringify(text)}  id ${id}`, `log-prob ${number(turn.logprobs[index])} (p = ${number(Math.exp(turn.logprobs[index]))})`,
      ...[["advantages", "advantage"], ["values", "value"], ["ratios", "ratio at the update"]].filter(([key]) => turn[key]).map(([key, name]) => `${name} ${number(turn[key][index], 4)}`),
    ].join("\n");
    return h("span", {
      class: "t sampled", tabindex: "0", style: value === null ? {} : { background: scale.paint(value) },
      onpointermove: (event) => showTip(detail(), event.clientX, event.clientY), onpointerleave: hideTip, onblur: hideTip,
      onfocus: (event) => { const box = event.target.getBoundingClientRect(); showTip(detail(), box.left, box.top); },
    }, text);
  });
  return [before.length ? h("div", { class: "before", tabindex: "0" }, before) : null, h("div", {}, sampled)];
}

function actions(turn) {
  if (!turn.actions.length) return h("span", { class: "empty" }, "no action was read");
  return h("div", { class: "acts" }, turn.actions.map((action, index) => h("span", { class: index >= turn.executed.length ? "cut" : null, title: index >= turn.executed.length ? "not executed" : null }, action)));
}

function turnCard(turn, index, last, vocabulary, scale, options) {
  const changed = last && turn.next && turn.next !== turn.observation;
  return h("article", { class: "turn" },
    h("header", {}, h("b", {}, `Turn ${index + 1}`), h("span", {}, "reward ", h("b", { class: turn.reward > 0 ? "good" : turn.reward < 0 ? "bad" : null }, number(turn.reward))),
      h("span", {}, turn.valid ? "valid format" : h("span", { class: "bad" }, "invalid format")), h("span", {}, `${turn.ids.length} tokens`), turn.window ? h("span", { title: "the prompt is the context below and nothing else" }, "window of the last turns") : null, turn.stop === "stop" ? null : h("span", { class: "warn" }, `ended by ${turn.stop}`)),
    h("div", { class: "turn-body" },
      h("div", {}, h("h4", {}, "Seen"), observation(turn.observation, turn.board)),
      h("div", { class: "said" },
        h("div", {}, h("h4", {}, "Thought"), turn.thought ? h("pre", {}, turn.thought) : h("span", { class: "empty" }, "none")),
        h("div", {}, h("h4", {}, "Answer: actions"), actions(turn)),
        turn.valid ? null : h("div", {}, h("h4", {}, "Written"), h("pre", {}, turn.response)),
        changed ? h("div", {}, h("h4", {}, "Afterwards"), observation(turn.next, turn.next_board)) : null,
        turn.info ? h("div", {}, h("h4", {}, "Told by the environment"), h("pre", {}, Object.entries(turn.info).map(([key, value]) => `${key}: ${Array.isArray(value) ? value.join(", ") : value}`).join("\n"))) : null,
        turn.error ? h("pre", { class: "bad" }, turn.error) : null)),
    h("div", { class: "tokens" }, h("h4", {}, options.context ? "Tokens: the context, dim, and what was sampled" : "Sampled tokens"), tokens(turn, vocabulary, scale, options.context)));
}

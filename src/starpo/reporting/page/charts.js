// Curves: a mean per family with its band over seeds, single seeds on demand.

const CHART = { width: 420, height: 232, left: 46, right: 12, top: 12, bottom: 34 };

function ticks(low, high, wanted) {
  const raw = (high - low) / wanted || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((each) => each * power).find((each) => each >= raw);
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9) * step; at <= high + step * 1e-6; at += step) found.push(Number(at.toPrecision(12)));
  return found;
}

function extent(lines, seeds) {
  const values = lines.flatMap((line) => [
    ...line.band.mid, ...line.band.low, ...line.band.high, ...(seeds ? line.runs.flatMap((run) => run.y) : []),
  ]).filter((value) => value !== null);
  let [low, high] = [Math.min(...values), Math.max(...values)];
  if (low >= 0 && low < 0.45 * high) low = 0;
  if (low === high) [low, high] = [low - 0.5, high + 0.5];
  const room = (high - low) * 0.05;
  return [low === 0 ? 0 : low - room, high + room];
}

function path(xs, ys, x, y) {
  let text = "", pen = "M";
  xs.forEach((each, index) => {
    if (ys[index] === null) { pen = "M"; return; }
    text += `${pen}${x(each).toFixed(1)} ${y(ys[index]).toFixed(1)}`;
    pen = "L";
  });
  return text;
}

function area(band, x, y) {
  const kept = band.x.map((_, index) => index).filter((index) => band.low[index] !== null);
  if (kept.length < 2) return "";
  const point = (index, values) => `${x(band.x[index]).toFixed(1)} ${y(values[index]).toFixed(1)}`;
  return `M${kept.map((index) => point(index, band.high)).join("L")}L${kept.reverse().map((index) => point(index, band.low)).join("L")}Z`;
}

function chart(about, families, options) {
  const lines = about.lines.filter((line) => options.shown.has(line.family));
  const small = h("small", {}, about.meaning);
  const figure = h("figure", { "data-metric": about.metric }, h("figcaption", {}, about.title, small));
  if (!lines.length) return figure;
  const { width, height, left, right, top, bottom } = CHART;
  const all = lines.flatMap((line) => line.band.x);
  const [first, last] = [Math.min(...all), Math.max(...all)];
  const [low, high] = extent(lines, options.seeds);
  const x = (value) => left + ((value - first) / (last - first || 1)) * (width - left - right);
  const y = (value) => top + ((high - value) / (high - low)) * (height - top - bottom);
  const drawing = s("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${about.title}: ${about.meaning}` });
  for (const tick of ticks(low, high, 4)) {
    drawing.append(s("line", { class: "grid", x1: left, x2: width - right, y1: y(tick), y2: y(tick) }),
      s("text", { x: left - 7, y: y(tick) + 4, "text-anchor": "end" }, number(tick)));
  }
  for (const tick of ticks(first, last, 5).filter(Number.isInteger)) {
    drawing.append(s("text", { x: x(tick), y: height - bottom + 17, "text-anchor": "middle" }, tick));
  }
  drawing.append(s("line", { class: "axis", x1: left, x2: width - right, y1: height - bottom, y2: height - bottom }),
    s("text", { x: width - right, y: height - 2, "text-anchor": "end" }, about.axis));
  for (const line of lines) drawing.append(s("path", { class: `area ${colour(line.family)}`, d: area(line.band, x, y) }));
  for (const line of lines) {
    if (options.seeds) for (const run of line.runs) drawing.append(s("path", { class: `seed ${colour(line.family)}`, d: path(run.x, run.y, x, y) }));
    drawing.append(s("path", { class: `curve ${colour(line.family)}`, d: path(line.band.x, line.band.mid, x, y) }));
    if (line.band.x.length < 12) line.band.x.forEach((each, index) => line.band.mid[index] !== null && drawing.append(s("circle", { class: `dot ${colour(line.family)}`, r: 3, cx: x(each), cy: y(line.band.mid[index]) })));
  }
  if (about.axis === "iteration") {
    for (const alarm of options.alarms.filter((each) => options.shown.has(each.family) && each.at >= first && each.at <= last)) {
      const at = x(alarm.at), foot = height - bottom;
      drawing.append(s("path", { class: "alarm", d: `M${at - 5} ${foot + 8}h10l-5 -9z` }, s("title", {}, `alarm in ${alarm.run} at iteration ${alarm.at}`)));
    }
  }
  const cross = s("line", { class: "cross", y1: top, y2: height - bottom, visibility: "hidden" });
  drawing.append(cross);
  const xs = [...new Set(all)].sort((one, other) => one - other);
  drawing.addEventListener("pointermove", (event) => {
    const box = drawing.getBoundingClientRect();
    const place = ((event.clientX - box.left) / box.width) * width;
    const at = xs.reduce((best, each) => (Math.abs(x(each) - place) < Math.abs(x(best) - place) ? each : best), xs[0]);
    cross.setAttribute("x1", x(at)); cross.setAttribute("x2", x(at)); cross.setAttribute("visibility", "visible");
    showTip(tipOf(about, lines, families, at), event.clientX, event.clientY);
  });
  drawing.addEventListener("pointerleave", () => { cross.setAttribute("visibility", "hidden"); hideTip(); });
  figure.append(drawing);
  return figure;
}

function tipOf(about, lines, families, at) {
  const rows = lines.map((line) => {
    const index = line.band.x.indexOf(at);
    if (index < 0) return null;
    const band = line.band.low[index] === null ? "" : ` (${number(line.band.low[index])} to ${number(line.band.high[index])})`;
    return `${families[line.family].label}: ${number(line.band.mid[index])}${band}, ${line.band.n[index]} seed${line.band.n[index] > 1 ? "s" : ""}`;
  });
  return [`${about.axis} ${at}`, ...rows.filter(Boolean)].join("\n");
}

function curves(summary, families) {
  const shown = new Set(families.map((family) => family.index));
  const options = { shown, seeds: false, alarms: alarmsOf(summary) };
  const place = h("div", { class: "charts" });
  const charts = summary.charts.filter((about) => about.lines.some((line) => shown.has(line.family)));
  const draw = () => swap(place, charts.map((about) => chart(about, summary.families, options)));
  const toggles = families.map((family) => {
    const button = h("button", { "aria-pressed": "true", class: colour(family.index), onclick: () => {
      if (shown.has(family.index)) shown.delete(family.index); else shown.add(family.index);
      button.setAttribute("aria-pressed", shown.has(family.index));
      draw();
    } }, h("i", { class: "swatch" }), `${family.label}, ${family.runs.length} seed${family.runs.length > 1 ? "s" : ""}`);
    return button;
  });
  const seeds = h("button", { "aria-pressed": "false", onclick: () => {
    options.seeds = !options.seeds;
    seeds.setAttribute("aria-pressed", options.seeds);
    draw();
  } }, "single seeds");
  draw();
  return section("curves", "Curves",
    "Means over seeds. Bands: 95 % t-interval over three or more seeds, the range of two. A red triangle on the axis is an alarm of the Echo Trap monitor.",
    h("div", { class: "controls" }, h("div", { class: "legend" }, toggles), seeds), place);
}

function alarmsOf(summary) {
  const family = Object.fromEntries(summary.families.flatMap((each, index) => each.runs.map((run) => [run, index])));
  return summary.collapse.filter((each) => each.alarm !== null).map((each) => ({ run: each.run, at: each.alarm, family: family[each.run] }));
}

function section(id, title, lead, ...children) {
  return h("section", { id }, h("h2", {}, title), h("p", { class: "lead" }, lead), children);
}

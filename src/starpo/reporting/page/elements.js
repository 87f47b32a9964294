// Building elements. Texts of models and environments only ever become text nodes.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || (value === false && !name.startsWith("aria-"))) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, each] of Object.entries(value)) element.style.setProperty(key, each);
    else element.setAttribute(name, value === true && !name.startsWith("aria-") ? "" : String(value));
  }
  for (const child of children.flat(3)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return element;
}

const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const s = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

function swap(place, ...children) {
  place.replaceChildren();
  return fill(place, {}, children);
}

const number = (value, digits = 3) => {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size < 0.001 || size >= 1e6)) return value.toExponential(2).replace("-", "−");
  return value.toLocaleString("en", { maximumFractionDigits: size >= 100 ? 0 : digits }).replace("-", "−");
};
const percent = (value) => (value === null || value === undefined ? "–" : (100 * value).toFixed(1).replace("-", "−"));
const signed = (value) => (value > 0 ? "+" : "") + percent(value);

function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const whole = Math.round(seconds);
  if (whole >= 3600) return `${Math.floor(whole / 3600)} h ${String(Math.floor((whole % 3600) / 60)).padStart(2, "0")} min`;
  if (whole >= 60) return `${Math.floor(whole / 60)} min ${String(whole % 60).padStart(2, "0")} s`;
  return `${whole} s`;
}

const tip = document.getElementById("tip");

function showTip(text, x, y) {
  tip.textContent = text;
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(6, Math.min(x + 14, innerWidth - box.width - 6))}px`;
  tip.style.top = `${y + 18 + box.height > innerHeight ? Math.max(6, y - box.height - 12) : y + 18}px`;
}
const hideTip = () => { tip.hidden = true; };

function select(label, options, value, change) {
  const list = h("select", { onchange: () => change(list.value) },
    options.map(([key, text]) => h("option", { value: key, selected: String(key) === String(value) }, text)));
  return h("label", {}, label, list);
}

const colour = (index) => `c${index % 8}`;

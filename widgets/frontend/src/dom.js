// The few lines that stand in for a framework.

/** An element: h("button", {class: "x", onclick: f, "aria-label": "y"}, "text", child). */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked" || name === "disabled") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

const SVG = "http://www.w3.org/2000/svg";

export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// Outlines on a 16 × 16 grid, drawn with one stroke width.
const ICONS = {
  select: "M3.5 2.5 12 7.6 8.2 8.8 6.4 12.8Z", hand: "M8 2v12M2 8h12M8 2 6.2 3.8M8 2l1.8 1.8M8 14l-1.8-1.8M8 14l1.8-1.8M2 8l1.8-1.8M2 8l1.8 1.8M14 8l-1.8-1.8M14 8l-1.8 1.8",
  rect: "M2.5 4.5h11v7h-11z", causal: "M2.5 2.5v11h11zM2.5 2.5h11v11", band: "M2.5 2.5l11 11M2.5 6.5l7 7M6.5 2.5l7 7", window: "M2.5 2.5l11 11M2.5 7.5l6 6",
  prefix: "M2.5 2.5h11v11h-11zM6.5 2.5v11", documents: "M2.5 2.5h5v5h-5zM7.5 7.5h6v6h-6z", grid: "M2.5 2.5h11v11h-11zM6.200 2.5v11M9.800 2.5v11M2.5 6.200h11M2.5 9.800h11",
  undo: "M6 3 3 6l3 3M3 6h6.5a3.5 3.5 0 0 1 0 7H6", redo: "M10 3l3 3-3 3M13 6H6.5a3.5 3.5 0 0 0 0 7H10",
  eye: "M1.5 8S4 3.5 8 3.5 14.5 8 14.5 8 12 12.5 8 12.5 1.5 8 1.5 8ZM8 6a2 2 0 1 0 0 4 2 2 0 0 0 0-4Z", "eye-off": "M2.5 2.5l11 11M4 5C2.400 6.3 1.5 8 1.5 8S4 12.5 8 12.5c1 0 2-.3 2.800-.7M7 3.6c.3 0 .7-.1 1-.1 4 0 6.5 4.5 6.5 4.5s-.5 1-1.5 2",
  lock: "M4 7.5h8v6H4zM5.5 7.5V5a2.5 2.5 0 0 1 5 0v2.5", unlock: "M4 7.5h8v6H4zM5.5 7.5V5a2.5 2.5 0 0 1 4.800-1",
  plus: "M8 3v10M3 8h10", minus: "M3 8h10", trash: "M3 4.5h10M6.5 4.5V3h3v1.5M4.5 4.5l.5 9h6l.5-9", copy: "M5.5 5.5h8v8h-8zM3.5 10.5h-1v-8h8v1",
  up: "M8 13V3M4 7l4-4 4 4", down: "M8 3v10M4 9l4 4 4-4", group: "M2.5 2.5h7v7h-7zM6.5 6.5h7v7h-7z", fit: "M2.5 5.5v-3h3M10.5 2.5h3v3M13.5 10.5v3h-3M5.5 13.5h-3v-3", link: "M6.5 9.5l3-3M7 4.5l1.500-1.500a2.500 2.500 0 0 1 3.500 3.500L10.500 8M9 11.500l-1.500 1.500a2.500 2.500 0 0 1-3.500-3.500L5.500 8", cell: "M2.5 3.5h11v4h-11zM8 10v4M6 12h4", help: "M5.800 6a2.200 2.200 0 1 1 3.400 1.8c-.8.5-1.200 1-1.200 1.900M8 12v.6",
  close: "M4 4l8 8M12 4l-8 8", magnet: "M3.5 3v5a4.5 4.5 0 0 0 9 0V3h-3v5a1.5 1.5 0 0 1-3 0V3zM3.5 5.5h3M9.5 5.5h3", download: "M8 2.5v8M4.5 7 8 10.5 11.5 7M3 13.5h10", warning: "M8 2.5 14 13H2zM8 6.5v3M8 11v.6", more: "M3.5 8h.01M8 8h.01M12.5 8h.01",
};

export function icon(name) {
  const path = svg("path", { d: ICONS[name] });
  const drawing = svg("svg", { viewBox: "0 0 16 16", class: "cms-icon", "aria-hidden": "true" }, path);
  return drawing;
}

/** A button that shows an icon; the label is its name for everybody who does not see it, and its tooltip. */
export function iconButton(name, label, onclick, { keys = "", ...attributes } = {}) {
  return h("button", { type: "button", class: "cms-button cms-icon-button", title: keys ? `${label} (${keys})` : label, "aria-label": label, onclick, ...attributes }, icon(name));
}

/** Whether a button can be used now. It keeps the focus either way: a disabled one would drop it, and keys with it. */
export function offer(button, possible) {
  if (!button.hasAttribute("aria-disabled")) {
    button.addEventListener("click", (event) => button.ariaDisabled === "true" && event.stopImmediatePropagation(), true);
  }
  button.setAttribute("aria-disabled", String(!possible));
}

/** One of a few: buttons side by side. */
export function segmented(label, options, value, onchange) {
  const buttons = options.map(([key, text, title]) => h("button", {
    type: "button", class: "cms-button", role: "radio", "aria-checked": String(key === value), title, "data-key": key,
    onclick: () => onchange(key),
  }, text));
  const group = h("div", { class: "cms-segmented", role: "radiogroup", "aria-label": label }, buttons);
  group.show = (key) => buttons.forEach((button) => button.setAttribute("aria-checked", String(button.dataset.key === key)));
  return group;
}

export function clear(element, ...children) {
  element.replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

const WHOLE = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

/** 1234567 → "1,234,567". */
export const whole = (value) => WHOLE.format(value);

/** Three figures and a unit: 1.23 M, 45.6 G. */
export function scaled(value, units = ["", "K", "M", "G", "T", "P", "E"]) {
  let at = 0;
  while (Math.abs(value) >= 999.5 && at < units.length - 1) {
    value /= 1000;
    at += 1;
  }
  return [at === 0 && Number.isInteger(value) ? `${value}` : figures(value), units[at]];
}

/** Three figures, no exponent. */
export function figures(value) {
  if (value === 0) return "0";
  const digits = Math.max(0, 2 - Math.floor(Math.log10(Math.abs(value))));
  return value.toFixed(Math.min(digits, 6));
}

export function bytes(count) {
  let at = 0;
  while (count >= 1024 && at < 3) {
    count /= 1024;
    at += 1;
  }
  return [at === 0 ? `${count}` : figures(count), ["B", "KiB", "MiB", "GiB"][at]];
}

/** Runs `render`, which replaces what is inside `body`, and gives the focus back to the field that had it. */
export function keepFocus(body, render) {
  const root = body.getRootNode();
  const held = body.contains(root.activeElement) ? root.activeElement : null;
  const name = held?.dataset.field ?? held?.getAttribute("aria-label");
  render();
  if (!name) return;
  const again = [...body.querySelectorAll("input, select, button")].find((element) => (element.dataset.field ?? element.getAttribute("aria-label")) === name);
  again?.focus({ preventScroll: true });
}

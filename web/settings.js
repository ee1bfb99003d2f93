// The settings of the page, in local storage, and the form of the parameters that the server lists.

const STORE = "unmask.settings";
const defaults = {
  base: "", key: "", model: "", timeout: 600, mode: "denoise", mask: "▨", interval: 80,
  colour: true, borders: true, history: true, compare: false, theme: "", open: null,
  parameters: [{}, {}], // of both sides, by name; a missing one has the server's default
};

export const settings = { ...defaults, ...read() };

function read() {
  try {
    return JSON.parse(localStorage.getItem(STORE)) ?? {};
  } catch {
    return {};
  }
}
/** Stores the settings, except the API key: it lasts as long as the page. */
export function save() {
  try {
    localStorage.setItem(STORE, JSON.stringify({ ...settings, key: "" }));
  } catch { /* without storage the settings last as long as the page */ }
}

const element = (tag, props = {}, ...children) => {
  const e = Object.assign(document.createElement(tag), props);
  e.append(...children);
  return e;
};

/** Returns the value of a field in the type of its row, undefined if it is empty. */
function valueOf(row, input) {
  const text = input.value.trim();
  if (text === "") return undefined;
  if (row.type === "bool") return text === "true";
  if (row.type === "integer" || row.type === "number") {
    const number = Number(text);
    return Number.isFinite(number) ? number : text; // "auto" and other words
  }
  return text;
}

function inputOf(row) {
  if (row.type === "bool" || row.choices) {
    const words = row.choices ?? ["true", "false"];
    const input = element("select", {}, element("option", { value: "", textContent: `default: ${row.default ?? "none"}` }));
    input.append(...words.map((w) => element("option", { value: w, textContent: w })));
    return input;
  }
  const input = element("input", { type: "text", placeholder: row.default ?? "", spellcheck: false, autocomplete: "off" });
  if (row.type === "integer" || row.type === "number") input.inputMode = row.type === "integer" ? "numeric" : "decimal";
  return input;
}

/** Returns why the text is no valid value of the row, "" if it is valid. The server checks again. */
export function errorOf(row, text) {
  if (text.trim() === "" || text.trim() === row.auto) return "";
  if (row.type !== "integer" && row.type !== "number") return "";
  const number = Number(text);
  if (!Number.isFinite(number)) return "not a number";
  if (row.type === "integer" && !Number.isInteger(number)) return "not an integer";
  const { min, max } = row;
  if (min !== null && max !== null && (number < min || number > max)) return `outside ${row.range}`;
  return "";
}

function showError({ input, why }, text) {
  input.setCustomValidity(text);
  input.setAttribute("aria-invalid", String(text !== ""));
  why.textContent = text && `${text}; not sent`;
  why.hidden = !text;
}

/** The form of the parameters, by group. It shows the values of one side at a time. */
export class ParameterForm {
  #rows = [];
  #inputs = new Map();
  side = 0;

  constructor(place, find) {
    this.place = place;
    find.addEventListener("input", () => this.#filter(find.value));
  }

  show(rows) {
    if (JSON.stringify(rows) === JSON.stringify(this.#rows)) return; // the user may be typing here
    this.#rows = rows;
    this.#inputs.clear();
    const groups = Map.groupBy ? Map.groupBy(rows, (r) => r.group) : grouped(rows);
    this.place.replaceChildren(...[...groups].map(([name, members], i) => {
      const box = element("details", { open: i === 0 }, element("summary", { textContent: name }));
      box.append(...members.map((row) => this.#line(row)));
      return box;
    }));
    this.fill();
  }

  #line(row) {
    const help = row.read_by ? `${row.help}; for ${row.read_by}` : row.help;
    const input = inputOf(row), why = element("span", { className: "complaint", role: "alert", hidden: true });
    const line = element("label", { className: "row" },
      element("span", { className: "range", textContent: row.range }),
      element("span", { className: "name", textContent: row.name }), input, why,
      element("span", { className: "help", textContent: help }));
    input.setAttribute("aria-label", row.name);
    input.setAttribute("aria-description", `${row.range}. ${help}`);
    line.dataset.words = `${row.name} ${help}`.toLowerCase();
    input.addEventListener("input", () => {
      showError({ input, why }, errorOf(row, input.value));
      const value = input.checkValidity() ? valueOf(row, input) : undefined;
      if (value === undefined) delete settings.parameters[this.side][row.name];
      else settings.parameters[this.side][row.name] = value;
      line.classList.toggle("set", value !== undefined);
      save();
    });
    this.#inputs.set(row.name, { input, line, why });
    return line;
  }

  /** Shows the values of the current side. */
  fill() {
    const values = settings.parameters[this.side];
    for (const [name, { input, line, why }] of this.#inputs) {
      input.value = values[name] ?? "";
      showError({ input, why }, "");
      line.classList.toggle("set", name in values);
    }
  }

  reset() {
    settings.parameters = [{}, {}];
    save();
    this.fill();
  }

  #filter(text) {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    for (const { line } of this.#inputs.values()) line.hidden = !words.every((w) => line.dataset.words.includes(w));
    for (const box of this.place.children) {
      box.hidden = ![...box.querySelectorAll(".row")].some((r) => !r.hidden);
      if (words.length) box.open = !box.hidden;
    }
  }

  /** Returns the parameters of a side that the server knows, for a request. */
  values(side) {
    const known = new Set(this.#rows.map((r) => r.name));
    return Object.fromEntries(Object.entries(settings.parameters[side]).filter(([name]) => known.has(name)));
  }
}

function grouped(rows) {
  const groups = new Map();
  for (const row of rows) groups.set(row.group, [...(groups.get(row.group) ?? []), row]);
  return groups;
}

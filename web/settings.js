// The settings of the page, in local storage, and the form of the parameters that the server lists.

import { element } from "./dom.js";

const STORE = "unmask.settings";
const defaults = {
  base: "", key: "", model: "", timeout: 600, mode: "denoise", interval: 80, slow: true, finished: "text",
  colour: true, borders: true, history: true, keep: true, compare: false, theme: "", open: null,
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

/** A drop-down for a closed choice, else a text field. */
function inputOf(row) {
  const words = row.type === "bool" ? ["true", "false"] : row.choices ?? row.names;
  if (words) {
    const input = element("select", "", new Option(`default: ${row.default ?? "none"}`, ""));
    input.append(...words.map((w) => new Option(w, w)));
    return input;
  }
  const input = Object.assign(element("input"), { type: "text", placeholder: row.default ?? "", spellcheck: false, autocomplete: "off" });
  if (row.type === "integer" || row.type === "number") input.inputMode = row.type === "integer" ? "numeric" : "decimal";
  return input;
}

/** Shows a value. A drop-down gets a further line for a word that it does not offer, such as an alias. */
function setValue(input, value) {
  if (input.tagName === "SELECT" && ![...input.options].some((o) => o.value === value)) input.add(new Option(value, value));
  input.value = value;
}

/** Returns how well a row fits the words, 0 if it does not. The exact name comes first, then the beginning of a name. */
function rank(row, words) {
  const name = row.name.toLowerCase(), all = `${name} ${row.help} ${row.read_by ?? ""}`.toLowerCase();
  const whole = words.join("_");
  if (!words.every((w) => all.includes(w))) return 0;
  if (name === whole) return 4;
  if (name.startsWith(whole)) return 3;
  return words.every((w) => name.includes(w)) ? 2 : 1;
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
  #inputs = new Map(); // by name: {row, input, line, why, box}
  #found = element("div", "found");
  side = 0;

  constructor(place, find) {
    this.place = place;
    this.find = find;
    find.addEventListener("input", () => this.#filter());
  }

  show(rows) {
    if (JSON.stringify(rows) === JSON.stringify(this.#rows)) return; // the user may be typing here
    this.#rows = rows;
    this.#inputs.clear();
    const boxes = new Map();
    for (const row of rows) {
      if (!boxes.has(row.group)) boxes.set(row.group, element("details", "", element("summary", "", row.group)));
      boxes.get(row.group).append(this.#line(row, boxes.get(row.group)));
    }
    this.place.replaceChildren(this.#found, ...boxes.values());
    if (this.#found.nextSibling) this.#found.nextSibling.open = true;
    this.fill();
    this.#filter();
  }

  #line(row, box) {
    const help = row.read_by ? `${row.help}; for ${row.read_by}` : row.help;
    const input = inputOf(row), why = Object.assign(element("span", "complaint"), { role: "alert", hidden: true });
    const line = element("label", "row", element("span", "name", row.name), element("span", "range", row.range ?? ""), input, why,
      element("span", "help", help));
    input.setAttribute("aria-label", row.name);
    input.setAttribute("aria-description", `${row.range ?? ""}. ${help}`);
    input.addEventListener("input", () => {
      showError({ input, why }, errorOf(row, input.value));
      const value = input.checkValidity() ? valueOf(row, input) : undefined;
      if (value === undefined) delete settings.parameters[this.side][row.name];
      else settings.parameters[this.side][row.name] = value;
      line.classList.toggle("set", value !== undefined);
      save();
    });
    this.#inputs.set(row.name, { row, input, line, why, box });
    return line;
  }

  /** Shows the values of the current side. */
  fill() {
    const values = settings.parameters[this.side];
    for (const [name, { input, line, why }] of this.#inputs) {
      setValue(input, String(values[name] ?? ""));
      showError({ input, why }, "");
      line.classList.toggle("set", name in values);
    }
  }

  reset() {
    settings.parameters = [{}, {}];
    save();
    this.fill();
  }

  /** Lists the rows that fit the search, the best first, in place of the groups. */
  #filter() {
    const words = this.find.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const { line, box } of this.#inputs.values()) box.append(line);
    const fit = words.length ? [...this.#inputs.values()].map((entry) => ({ ...entry, rank: rank(entry.row, words) })) : [];
    const found = fit.filter((entry) => entry.rank).sort((a, b) => b.rank - a.rank).map((entry) => entry.line);
    this.#found.replaceChildren(...found, ...(words.length && !found.length ? [element("p", "help", "no such parameter")] : []));
    for (const box of this.place.querySelectorAll("details")) box.hidden = words.length > 0;
  }

  /** Returns the parameters of a side that the server knows, for a request. */
  values(side) {
    return Object.fromEntries(Object.entries(settings.parameters[side]).filter(([name]) => this.#inputs.has(name)));
  }

  /** Returns how the two sides differ: a text for each side, such as "accept_threshold 0.3". */
  differences() {
    const sides = [this.values(0), this.values(1)];
    const names = this.#rows.map((r) => r.name).filter((name) => sides[0][name] !== sides[1][name]);
    if (!names.length) return sides.map(() => "same settings");
    return sides.map((s) => names.map((name) => `${name} ${s[name] ?? this.#inputs.get(name).row.default ?? "default"}`).join(", "));
  }
}

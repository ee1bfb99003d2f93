// Small helpers that make nodes.

export function element(tag, className = "", ...children) {
  const e = Object.assign(document.createElement(tag), { className });
  e.append(...children);
  return e;
}

export function button(name, onclick, className = "") {
  const e = Object.assign(element("button", className, name), { type: "button" });
  e.addEventListener("click", onclick);
  return e;
}

/** Buttons of which one is pressed. `names` are their texts by value. press(value) shows a choice without a call. */
export function toggle(label, names, choose) {
  const buttons = Object.entries(names).map(([value, name]) => Object.assign(button(name, () => choose(value)), { value }));
  const node = element("div", "switch", ...buttons);
  node.setAttribute("role", "group");
  node.setAttribute("aria-label", label);
  return { node, press: (value) => buttons.forEach((b) => b.setAttribute("aria-pressed", String(b.value === value))) };
}

/** Copies text. Pages over plain HTTP from another host have no clipboard API, so this falls back to copying a selection. */
async function copy(text) {
  try {
    return await navigator.clipboard.writeText(text);
  } catch {
    const area = Object.assign(element("textarea", "unseen"), { value: text }), focus = document.activeElement;
    document.body.append(area);
    area.select();
    const copied = document.execCommand("copy");
    area.remove();
    focus?.focus();
    if (!copied) throw new Error("copying failed");
  }
}

export function copyButton(name, text) {
  const b = button(name, async () => {
    b.textContent = await copy(text()).then(() => "copied", (e) => e.message);
    setTimeout(() => { b.textContent = name; }, 1000);
  });
  return b;
}

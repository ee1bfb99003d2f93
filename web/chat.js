// The conversation: questions, each with one answer, or two in a comparison. It sends the requests and draws the cards.

import { curl, stream } from "./api.js";
import { Card } from "./card.js";
import { button, copyButton, element } from "./dom.js";
import { settings } from "./settings.js";
import { templates } from "./templates.js";

const NEWS_MAX = 500; // characters of an answer that a screen reader reads

/** Shows an event on the card. The three endpoints have different events. */
function handleEvent(card, e) {
  if (e.usage) card.usage(e.usage);
  if (e.event === "buffer_snapshot") return card.snapshot(e);
  if (e.event === "append") return card.append(e.text, e.token_offset + e.token_ids.length, e.nfe);
  if (e.event === "final") {
    if (e.nfe) card.numbers.update(e.token_ids.length, e.nfe);
    card.numbers.engineTps = e.engine_decode_tps ?? card.numbers.engineTps;
    return card.finish(e.text, e.finish_reason);
  }
  const choice = e.choices?.[0];
  if (!choice) return;
  if (choice.delta?.reasoning_content) card.addReasoning(choice.delta.reasoning_content);
  const text = choice.delta?.content ?? choice.text ?? "";
  if (text) card.append(text, card.numbers.tokens + (choice.token_ids?.length ?? 1), card.numbers.nfe);
  if (choice.dllm) card.provisional(choice.dllm, choice.dllm.nfe);
  if (choice.finish_reason) card.reason.textContent = choice.finish_reason;
}

/** A question with its answers. */
class Turn {
  cards = [];

  constructor(chat, { text, suffix, template }) {
    Object.assign(this, { text, suffix, template });
    this.question = element("div", "question");
    this.answers = element("div", "answers");
    this.node = element("section", "turn", this.question, this.answers);
    this.#showQuestion(chat);
  }

  #showQuestion(chat) {
    const gap = this.template.kind === "infill" ? [element("span", "mask open"), this.suffix] : [];
    this.question.replaceChildren(element("div", "words", this.text, ...gap),
      button("Edit", () => { if (!chat.isRunning) this.#edit(chat); }, "quiet"));
  }

  /** Turns the question into a form. A changed question starts the conversation anew from here. */
  #edit(chat) {
    const area = Object.assign(element("textarea"), { value: this.text, rows: 3 });
    area.setAttribute("aria-label", "Edit the message");
    const close = () => {
      this.#showQuestion(chat);
      this.question.querySelector("button").focus();
    };
    const submit = () => { if (area.value.trim() && !chat.isRunning) chat.again(this, area.value); };
    area.addEventListener("keydown", (e) => {
      if (e.key === "Escape") close();
      else if (e.key === "Enter" && !e.shiftKey && !e.isComposing) submit();
      else return;
      e.preventDefault();
      e.stopPropagation();
    });
    this.question.replaceChildren(area, element("div", "tools", button("Send", submit, "main"), button("Cancel", close)));
    area.focus();
  }

  get isDone() { return this.cards[0]?.node.dataset.state === "done"; }
  /** The user's messages of this question, without system turns. */
  messages() { return this.template.make(this.text).filter((m) => m.role !== "system"); }
  toJSON() {
    return { text: this.text, suffix: this.suffix, template: this.template.name,
             answers: this.cards.filter((c) => c.node.dataset.state).map((c) => c.toJSON()) };
  }
}

export class Chat {
  id = newId();
  turns = [];
  #running = new Set(); // AbortControllers of the running requests
  #page;

  /** `page` has: server() for the requests, model(), form, onRunning(), onFailure(error), onAnswered(), announce(text). */
  constructor(place, page) {
    this.place = place;
    this.#page = page;
  }

  get isRunning() { return this.#running.size > 0; }
  get cards() { return this.turns.flatMap((t) => t.cards); }
  stop() { for (const controller of this.#running) controller.abort("stop"); }
  clear() {
    this.stop();
    this.id = newId();
    for (const turn of this.turns) turn.node.remove();
    this.turns = [];
  }

  /** Asks a question. Resolves to its turn when all answers have ended. */
  async ask(question) {
    const turn = this.#add(question);
    const differences = settings.compare ? this.#page.form.differences() : [""];
    const work = differences.map((label, side) => {
      const [path, body] = this.#request(turn, side);
      const card = this.#addCard(turn, { side: settings.compare ? "AB"[side] : "", label }, () => curl(this.#page.server(), path, body));
      return this.#answer(card, path, body);
    });
    await Promise.all(work);
    if (this.turns.includes(turn)) this.#page.onAnswered(turn);
    return turn;
  }

  /** Asks a question again, maybe in other words. The turns after it go away. */
  again(turn, text = turn.text) {
    for (const gone of this.turns.splice(this.turns.indexOf(turn))) gone.node.remove();
    return this.ask({ text, suffix: turn.suffix, template: turn.template });
  }

  /** Shows a saved conversation in place of this one. */
  restore(saved) {
    this.clear();
    this.id = saved.id;
    for (const { answers, ...question } of saved.turns) {
      const turn = this.#add({ ...question, template: templates.find((t) => t.name === question.template) ?? templates[0] });
      for (const answer of answers) this.#addCard(turn, answer).restore(answer);
    }
  }

  #add(question) {
    const turn = new Turn(this, question);
    this.turns.push(turn);
    this.place.append(turn.node);
    return turn;
  }
  #addCard(turn, { side, label }, command) {
    const tools = [(card) => copyButton("Copy", () => card.text)];
    if (command) tools.push(() => copyButton("Copy as curl", command));
    tools.push(() => button(side ? "Regenerate both" : "Regenerate", () => { if (!this.isRunning) this.again(turn); }, "regenerate"));
    const card = new Card({ side, label, tools });
    turn.cards.push(card);
    turn.answers.append(card.node);
    turn.node.classList.toggle("pair", turn.cards.length > 1);
    return card;
  }

  /** Returns the path and the body of a request. */
  #request({ text, suffix, template }, side) {
    const body = { model: this.#page.model(), ...this.#page.form.values(side), stream: true, stream_mode: settings.mode };
    const made = template.make(text);
    if (template.kind === "chat") {
      const before = settings.history ? this.turns.filter((t) => t.template.kind === "chat" && t.isDone) : [];
      const history = before.flatMap((t) => [...t.messages(), { role: "assistant", content: t.cards[0].text }]);
      body.messages = [...made.filter((m) => m.role === "system"), ...history, ...made.filter((m) => m.role !== "system")];
      body.stream_options = { include_usage: true };
      return ["/v1/chat/completions", body];
    }
    body.prompt = made;
    if (template.kind === "raw") return ["/generate", body];
    return ["/v1/completions", { ...body, suffix, stream_options: { include_usage: true } }];
  }

  async #answer(card, path, body) {
    const controller = new AbortController();
    const timer = setTimeout(() => controller.abort(new Error(`no answer within ${settings.timeout} s`)), settings.timeout * 1000);
    this.#running.add(controller);
    this.#page.onRunning();
    try {
      for await (const e of stream(this.#page.server(), path, body, controller.signal)) handleEvent(card, e);
      if (card.node.dataset.state !== "done") card.finish(null, card.reason.textContent);
    } catch (e) {
      if (controller.signal.aborted && controller.signal.reason === "stop") card.stopped();
      else this.#fail(card, controller.signal.aborted ? controller.signal.reason : e);
    } finally {
      clearTimeout(timer);
      this.#running.delete(controller);
      this.#page.onRunning();
    }
    this.#page.announce(`${card.node.dataset.state}: ${card.text.slice(0, NEWS_MAX)}`);
  }

  #fail(card, e) {
    card.fail(e.message + (e.param ? ` (${e.param})` : ""));
    this.#page.onFailure(e);
  }

  toJSON() { return { id: this.id, time: Date.now(), turns: this.turns }; }
}

/** An id that another tab does not choose. randomUUID needs HTTPS. */
const newId = () => Array.from(crypto.getRandomValues(new Uint32Array(2)), (n) => n.toString(36)).join("-");

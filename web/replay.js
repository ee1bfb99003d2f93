// The slider over the passes of an answer, with a button that plays them.

import { element } from "./dom.js";

const PLAY_MS = 3000;                         // for all passes, if a pass stays within these bounds:
const PASS_MS_MIN = 60, PASS_MS_MAX = 450;

export class Replay {
  #timer = 0;
  #ended = () => {}; // resolves the promise of play()
  #draw;

  /** `draw` shows the pass `at`. Pass 0 is before the first: all masks. */
  constructor(draw) {
    this.#draw = draw;
    this.slider = Object.assign(element("input"), { type: "range", min: 0, max: 0, step: 1 });
    this.slider.setAttribute("aria-label", "Pass");
    this.counter = element("output");
    this.button = Object.assign(element("button", "play quiet"), { type: "button" });
    this.button.addEventListener("click", () => this.#toggle());
    this.slider.addEventListener("input", () => { this.pause(); draw(); });
    this.slider.addEventListener("keydown", (e) => {
      if (e.key !== " ") return;
      e.preventDefault();
      this.#toggle();
    });
    this.node = element("div", "replay", this.button, this.slider, this.counter);
    this.node.hidden = true;
    this.#label("Play");
  }

  get at() { return Number(this.slider.value); }
  /** Offers this many passes. None hides the slider. */
  open(n) {
    this.slider.max = n;
    this.node.hidden = n === 0;
    this.toEnd();
  }
  toEnd() { this.slider.value = this.slider.max; }

  caption(pass, passes) {
    this.slider.setAttribute("aria-valuetext", `pass ${pass}`);
    this.counter.textContent = `pass ${pass} of ${passes}`;
  }

  #toggle() {
    if (this.#timer) this.pause();
    else this.play();
  }
  pause() { this.#finish(false); }
  /** Plays to the end, from the start if it stands at the end. Resolves to false if the reader stops it. */
  play() {
    this.pause();
    if (this.slider.value === this.slider.max) this.slider.value = 0;
    this.#draw();
    this.#label("Pause");
    const wait = Math.min(PASS_MS_MAX, Math.max(PASS_MS_MIN, PLAY_MS / Number(this.slider.max)));
    this.#timer = setInterval(() => this.#advance(), wait);
    return new Promise((ended) => { this.#ended = ended; });
  }
  /** The last pass stays for as long as the others before play() ends. */
  #advance() {
    if (this.slider.value === this.slider.max) return this.#finish(true);
    this.slider.value = this.at + 1;
    this.#draw();
  }
  #finish(whole) {
    clearInterval(this.#timer);
    this.#timer = 0;
    this.#label("Play");
    this.#ended(whole);
  }
  #label(name) {
    this.button.classList.toggle("playing", name === "Pause");
    this.button.title = name;
    this.button.setAttribute("aria-label", name);
  }
}

// The page of a game: keys, picture, sliders. It asks the kernel for one step after the other.
const KINDS = ["keydown", "keyup"], AFTER_THE_END = 1200;  // ms

function element(kind, properties = {}, ...children) {
  const made = Object.assign(document.createElement(kind), properties);
  made.append(...children);
  return made;
}

// One row of controls for each parameter; `chosen()` returns those that have been changed.
function parameters(params) {
  const changed = {}, rows = [];
  for (const [name, about] of Object.entries(params)) {
    const text = `${name}: ${about.help}`, shown = element("output", {textContent: String(about.value)});
    let input;
    if (about.kind === "bool") input = element("input", {type: "checkbox", checked: about.value});
    else if (about.kind === "choice") {
      input = element("select", {}, ...about.choices.map(x => element("option", {textContent: x, selected: x === about.value})));
    } else {
      input = element("input", {type: "range", min: about.low, max: about.high, step: about.kind === "int" ? 1 : "any"});
      input.value = about.value;
    }
    input.setAttribute("aria-label", name);
    input.addEventListener("input", () => {
      const value = about.kind === "bool" ? input.checked : about.kind === "choice" ? input.value : Number(input.value);
      changed[name] = value;
      shown.textContent = typeof value === "number" ? String(Number(value.toPrecision(4))) : "";
    });
    if (about.kind === "bool" || about.kind === "choice") shown.textContent = "";
    rows.push(element("label", {title: text, style: "display:grid;grid-template-columns:13em 1fr 9em;gap:8px"},
      element("span", {textContent: name}), input, element("span", {}, shown, ` ${about.unit}`)));
  }
  return {rows, chosen: () => ({...changed})};
}

function render({model, el}) {
  const about = model.get("about");
  const image = element("img", {alt: about.title, width: about.width, style: "display:block"});
  const button = element("button", {type: "button", textContent: "play"});
  const again = element("button", {type: "button", textContent: "new episode"});
  const speed = element("input", {type: "range", min: about.slowest, max: about.fastest, value: about.fps});
  speed.setAttribute("aria-label", "steps a second");
  const pace = element("output", {textContent: about.fps});
  const said = element("div", {style: "color:#B2182B"});
  said.setAttribute("role", "status");
  const text = element("pre", {style: "white-space:pre-wrap;margin:4px 0"});
  const {rows, chosen} = parameters(about.params);
  const box = element("div", {
    tabIndex: 0, style: `font-family:sans-serif;font-size:13px;padding:3px;outline-offset:-2px;max-width:${Math.max(about.width, 420)}px`,
  },
    image,
    element("div", {style: "display:flex;gap:8px;align-items:center;flex-wrap:wrap"}, button, again, speed, pace, "steps a second"),
    element("small", {textContent: `click the picture to play. ${about.help}; space pauses, r begins anew, Escape leaves`}),
    said, text,
    element("details", {}, element("summary", {textContent: "parameters, from the next episode on"}), ...rows));
  box.setAttribute("role", "group");
  box.setAttribute("aria-label", `${about.title}; click the picture to play; ${about.help}`);
  el.append(box);

  // A key that is pressed and released between two steps counts for one step; `held` are in the order of pressing.
  let running = false, waiting = false, wanted = false, timer = null, held = [], tapped = [], over = false, picture = null;
  const ask = (kind, more = {}) => { waiting = true; model.send({kind, ...more}); };
  const begin = () => {  // as soon as the answer to the last question has come
    wanted = waiting;
    tapped = [];
    if (!waiting) ask("begin", {params: chosen()});
  };
  const tick = () => {
    if (!box.isConnected) return pause();
    if (waiting || over) return;
    const keys = [...tapped.filter(key => !held.includes(key)), ...held];
    tapped = [];
    ask("step", {keys});
  };
  const pause = () => {
    running = false;
    clearInterval(timer);
    [held, tapped] = [[], []];
    button.textContent = "play";
  };
  const play = () => {
    if (running) clearInterval(timer);
    running = true;
    button.textContent = "pause";
    timer = setInterval(tick, 1000 / Number(speed.value));
    if (over) begin();
  };
  const answered = (answer, buffers) => {
    waiting = false;
    if (picture !== null) URL.revokeObjectURL(picture);
    picture = URL.createObjectURL(new Blob([buffers[0]], {type: "image/jpeg"}));
    image.src = picture;
    text.textContent = answer.text;
    if (answer.said || answer.step === 0) said.textContent = answer.said;
    if (answer.over && !over) setTimeout(() => { if (over && running) begin(); }, AFTER_THE_END);
    over = answer.over;
    if (wanted) begin();
  };
  model.on("msg:custom", answered);

  // Notebooks take arrows, space and letters as commands, some before the page's elements hear of them: so this listens on the
  // window, as the first of all, while the keyboard's focus is in here.
  const press = event => {
    if (!box.isConnected) return leave();
    if (event.ctrlKey || event.metaKey || event.altKey || event.key === "Tab" || event.key === "Shift") return;
    event.stopImmediatePropagation();
    if (event.target.closest?.("input, select, summary") || (event.key === "Enter" && event.target.closest?.("button"))) return;
    event.preventDefault();
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    if (event.type === "keyup") { held = held.filter(x => x !== key); return; }
    if (event.repeat) return;
    if (key === "Escape") { pause(); document.activeElement.blur(); }
    else if (key === " ") { if (running) pause(); else play(); }
    else if (key === "r") begin();
    else if (about.keys.includes(key)) { held.push(key); tapped.push(key); }
  };
  const leave = () => {
    for (const kind of KINDS) window.removeEventListener(kind, press, true);
    box.style.outline = "";
  };
  box.addEventListener("focusin", () => {
    for (const kind of KINDS) window.addEventListener(kind, press, true);
    box.style.outline = "2px solid #0072B2";
  });
  box.addEventListener("focusout", event => {
    if (box.contains(event.relatedTarget)) return;
    leave();
    pause();
  });
  image.addEventListener("click", () => { box.focus({preventScroll: true}); if (!running) play(); });
  button.addEventListener("click", () => { box.focus({preventScroll: true}); if (running) pause(); else play(); });
  again.addEventListener("click", () => { box.focus({preventScroll: true}); begin(); });
  speed.addEventListener("input", () => { pace.textContent = speed.value; if (running) play(); });
  ask("look");
  return () => {
    leave();
    pause();
    model.off("msg:custom", answered);
    if (picture !== null) URL.revokeObjectURL(picture);
  };
}

export default {render};

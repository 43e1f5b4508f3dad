// The page of a game: it sends keys, shows the answer, and sends the next message after the seconds that the answer names.
function render({model, el}) {
  const make = (kind, properties) => Object.assign(document.createElement(kind), properties);
  const image = make("img", {alt: model.get("title"), width: model.get("width"), style: "display:block;max-width:100%"});
  const hint = make("small", {textContent: "click the picture to play; Escape leaves it"});
  const text = make("pre", {style: "white-space:pre-wrap;margin:4px 0"});
  const box = make("div", {tabIndex: 0, ariaLabel: model.get("title"), style: "padding:3px;outline-offset:-2px"});
  box.setAttribute("role", "group");
  box.setAttribute("data-lm-suppress-shortcuts", "true");  // JupyterLab and Notebook 7: keys are no commands in here
  box.append(image, hint, text);
  el.append(box);

  // `pressed` are keys since the last message, `down` those that are held. A key that was released in between counts once.
  let pressed = ["Escape"], down = [], waiting = false, timer = null, picture = null;
  const send = () => {
    timer = null;
    waiting = true;
    if (!box.isConnected) pressed.push("Escape");
    model.send({pressed, down: [...pressed.filter(key => !down.includes(key)), ...down]});
    pressed = [];
  };
  const press = key => {
    pressed.push(key);
    if (!waiting && timer === null) send();
  };
  const answered = (answer, buffers) => {
    text.textContent = answer.text;
    if (!buffers?.length) return;  // an error ended the game: no more messages
    waiting = false;
    URL.revokeObjectURL(picture);
    image.src = picture = URL.createObjectURL(new Blob([buffers[0]], {type: "image/jpeg"}));
    clearTimeout(timer);  // of another page's answer
    timer = null;
    if (answer.wait !== null) timer = setTimeout(send, 1000 * answer.wait);
    else if (pressed.length) send();
  };
  model.on("msg:custom", answered);

  box.addEventListener("keydown", event => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.key === "Tab" || event.key === "Shift") return;
    event.preventDefault();
    if (event.key === "Escape") return box.blur();
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    if (event.repeat || down.includes(key)) return;
    down.push(key);
    press(key);
  });
  box.addEventListener("keyup", event => { down = down.filter(key => key.toLowerCase() !== event.key.toLowerCase()); });
  box.addEventListener("focus", () => { box.style.outline = "2px solid #0072B2"; });
  box.addEventListener("blur", () => {
    box.style.outline = "";
    down = [];
    press("Escape");
  });
  image.addEventListener("click", () => box.focus({preventScroll: true}));
  send();
  return () => {
    clearTimeout(timer);
    model.off("msg:custom", answered);
    model.send({pressed: ["Escape"], down: []});
    URL.revokeObjectURL(picture);
  };
}

export default {render};

(name, data) => {
  const box = document.getElementById(name), last = data.pictures.length - 1;
  const parts = ["img", "input", "output", "pre", "button", "small"];
  const [image, slider, shown, text, button, hint] = parts.map(x => box.querySelector(x));
  slider.disabled = button.disabled = false;
  hint.textContent = data.hint;  // instead of what is said where no script runs
  box.ariaLabel += `; ${data.hint}`;
  const steps = {
    ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: 10, PageDown: -10, Home: -Infinity, End: Infinity,
  };
  let timer = null;
  const show = k => {
    slider.value = Math.min(last, Math.max(0, k));
    k = Number(slider.value);
    image.src = data.pictures[k]; shown.value = k; text.textContent = data.words[k];
  };
  const stop = () => { clearInterval(timer); timer = null; button.textContent = "play"; };
  const play = () => {
    if (timer) return stop();
    button.textContent = "stop";
    timer = setInterval(() => {
      if (!box.isConnected) return stop();
      show(Number(slider.value) >= last ? 0 : Number(slider.value) + 1);
    }, data.period);
  };
  slider.addEventListener("input", () => { stop(); show(Number(slider.value)); });
  button.addEventListener("click", play);

  // Notebooks take arrows and space as commands, some before the page's elements hear of them: so this listens on the window,
  // as the first of all, while the keyboard's focus is in here. It takes the keys that it uses, and letters, too, of which two
  // delete a cell; others, such as Tab and Escape, and all with Ctrl are left alone.
  const press = event => {
    if (!box.isConnected) return leave();
    if (event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
    const used = event.key === " " || event.key in steps;
    if (!used && event.key.length > 1) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    if (event.type === "keyup" || !used) return;
    if (event.key === " ") { if (!event.repeat) play(); return; }
    stop();
    show(Number(slider.value) + steps[event.key]);
  };
  const kinds = ["keydown", "keyup"];
  const leave = () => {
    for (const kind of kinds) window.removeEventListener(kind, press, true);
    box.style.outline = "";
  };
  box.addEventListener("focusin", () => {
    for (const kind of kinds) window.addEventListener(kind, press, true);
    box.style.outline = "2px solid #0072B2";
  });
  box.addEventListener("focusout", leave);
  box.addEventListener("click", event => {
    if (!event.target.closest("button, input")) box.focus({preventScroll: true});
  });
}

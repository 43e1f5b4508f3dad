(name, data) => {
  const box = document.getElementById(name), last = data.pictures.length - 1;
  const parts = ["img", "input", "output", "pre", "button", "small"];
  const [image, slider, shown, text, button, hint] = parts.map(x => box.querySelector(x));
  slider.disabled = button.disabled = false;
  hint.textContent = data.hint;
  let timer = null;
  const show = k => {
    slider.value = shown.value = k;
    image.src = data.pictures[k];
    text.textContent = data.words[k];
  };
  const stop = () => { clearInterval(timer); timer = null; button.textContent = "play"; };
  const next = () => {
    if (!box.isConnected) return stop();
    show(Number(slider.value) >= last ? 0 : Number(slider.value) + 1);
  };
  button.addEventListener("click", () => {
    if (timer) return stop();
    button.textContent = "stop";
    timer = setInterval(next, data.period);
  });
  slider.addEventListener("input", () => { stop(); show(Number(slider.value)); });
  image.addEventListener("click", () => slider.focus({preventScroll: true}));
}

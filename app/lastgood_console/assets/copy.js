// Copy a command to the clipboard: one listener for every button, whatever is drawn again.
if (!window.lastgoodCopies) {
  window.lastgoodCopies = true;
  const old = (text) => { // pages over plain HTTP have no clipboard interface
    const area = document.createElement("textarea");
    area.value = text;
    area.style.cssText = "position:fixed;opacity:0";
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done ? Promise.resolve() : Promise.reject(new Error("refused"));
  };
  document.addEventListener("click", (event) => {
    const button = event.target instanceof Element && event.target.closest("button.lg-copy");
    if (!button) return;
    const text = button.parentElement.querySelector("code").textContent;
    const copied = navigator.clipboard ? navigator.clipboard.writeText(text).catch(() => old(text)) : old(text);
    const say = (words) => {
      button.dataset.said = words;
      setTimeout(() => delete button.dataset.said, 2000);
    };
    copied.then(() => say("copied"), () => say("select and copy it"));
    button.focus();
  });
}

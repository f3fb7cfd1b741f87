(() => {
  "use strict";
  const pieces = JSON.parse(document.getElementById("pieces").textContent);
  const paths = [...document.querySelectorAll("details.path")];
  const said = document.getElementById("lit");
  // What each thing in the drawing and the tables is used by, and the other way round.
  const uses = new Map(paths.map((path) => [path, path.dataset.lights.split(" ")]));
  let kept = null;

  const clear = () => {
    for (const one of document.querySelectorAll(".lit")) one.classList.remove("lit");
  };
  const light = (chosen) => {
    clear();
    for (const path of chosen) {
      path.classList.add("lit");
      for (const name of uses.get(path)) {
        for (const one of document.getElementsByClassName(name)) one.classList.add("lit");
      }
    }
    const titles = chosen.map((path) => path.querySelector("summary").textContent);
    said.textContent = titles.length > 2 ? `${titles.length} paths, first ${titles[0]}` : titles.join("; ");
  };
  const over = (thing) => paths.filter((path) => uses.get(path).includes(thing.dataset.light));
  const show = (chosen, thing) => {
    light(chosen);
    if (thing) thing.classList.add("lit");
    if (thing && !chosen.length) said.textContent = "no path of the plan";
  };
  const back = () => {
    if (kept) show(...kept);
    else { clear(); said.textContent = ""; }
  };
  const press = (thing) => {
    for (const one of document.querySelectorAll('[aria-pressed="true"]')) {
      if (one !== thing) one.setAttribute("aria-pressed", "false");
    }
    const on = thing && thing.getAttribute("aria-pressed") !== "true";
    if (thing) thing.setAttribute("aria-pressed", String(Boolean(on)));
    kept = on ? [over(thing), thing] : null;
    back();
  };

  for (const path of paths) {
    const head = path.querySelector("summary");
    for (const event of ["mouseenter", "focus"]) head.addEventListener(event, () => show([path]));
    for (const event of ["mouseleave", "blur"]) head.addEventListener(event, back);
    path.addEventListener("toggle", () => {
      const open = paths.filter((one) => one.open);
      press(null);
      kept = open.length ? [open] : null;
      back();
    });
  }
  for (const thing of document.querySelectorAll("[data-light]")) {
    for (const event of ["mouseenter", "focus"]) thing.addEventListener(event, () => show(over(thing), thing));
    for (const event of ["mouseleave", "blur"]) thing.addEventListener(event, back);
    if (thing.getAttribute("role") !== "button") continue;
    thing.addEventListener("click", () => press(thing));
    thing.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      press(thing);
    });
  }
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    for (const path of paths) path.open = false;
    press(null);
  });
  for (const file of document.querySelectorAll("details.file")) {
    file.addEventListener("toggle", () => {
      const into = file.querySelector(".content");
      if (file.open && !into.textContent) {
        into.textContent = file.dataset.pieces.split(" ").map((number) => pieces[number]).join("");
      }
    });
  }
})();

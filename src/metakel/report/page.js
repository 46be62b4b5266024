"use strict";
// What a point stands for, by mouse, finger or keyboard.
(() => {
  const tip = document.getElementById("tip");
  const show = (target) => {
    if (!target) { tip.style.display = "none"; return; }
    tip.textContent = target.dataset.tip;
    tip.style.display = "block";
    const box = target.getBoundingClientRect();
    const centered = box.left + box.width / 2 - tip.offsetWidth / 2;
    const above = box.top - tip.offsetHeight - 8;
    tip.style.left = `${Math.min(Math.max(centered, 8), innerWidth - tip.offsetWidth - 8)}px`;
    tip.style.top = `${above > 8 ? above : box.bottom + 8}px`;
  };
  const near = (element) => element && element.closest ? element.closest("[data-tip]") : null;
  for (const name of ["pointerover", "focusin", "click"])
    document.addEventListener(name, (event) => show(near(event.target)));
  document.addEventListener("scroll", () => show(near(document.activeElement)), { passive: true });
  const save = (name, type, text) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  };
  for (const button of document.querySelectorAll("button.save"))
    button.addEventListener("click", () =>
      save(button.dataset.name, "text/csv", button.parentElement.nextElementSibling.textContent));
  // A chart by itself has no style sheet: every mark takes its look along.
  const LOOK = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "stroke-opacity", "opacity", "font-size", "font-family"];
  const alone = (svg) => {
    const copy = svg.cloneNode(true);
    copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
    const marks = copy.querySelectorAll("*");
    svg.querySelectorAll("*").forEach((mark, i) => {
      const seen = getComputedStyle(mark);
      for (const name of LOOK) marks[i].setAttribute(name, seen.getPropertyValue(name));
      marks[i].removeAttribute("tabindex");
    });
    const [, , width, height] = svg.getAttribute("viewBox").split(" ");
    const paper = document.createElementNS("http://www.w3.org/2000/svg", "rect");
    paper.setAttribute("width", width);
    paper.setAttribute("height", height);
    paper.setAttribute("fill", getComputedStyle(document.body).backgroundColor);
    copy.prepend(paper);
    return new XMLSerializer().serializeToString(copy);
  };
  for (const figure of document.querySelectorAll("figure")) {
    const button = document.createElement("button"), title = figure.querySelector("h3");
    button.textContent = "SVG";
    button.setAttribute("aria-label", `Download ${title.textContent} as SVG`);
    button.className = "chart";
    const name = title.textContent.replace(/[^\w]+/g, "-").toLowerCase();
    button.addEventListener("click", () => save(`${name}.svg`, "image/svg+xml", alone(figure.querySelector("svg"))));
    figure.querySelector("figcaption").prepend(button);
  }
  // Three charts stand side by side.
  for (const row of document.querySelectorAll(".figures"))
    row.classList.toggle("three", row.querySelectorAll(":scope > figure:not(.whole)").length === 3);
  document.documentElement.dataset.ready = "yes";
})();

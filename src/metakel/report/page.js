"use strict";
// What a point stands for, by mouse, finger or keyboard.
(() => {
  const tip = document.getElementById("tip");
  const show = (target) => {
    if (!target) { tip.style.display = "none"; return; }
    tip.textContent = target.dataset.tip;
    tip.style.display = "block";
    const box = target.getBoundingClientRect();
    const centred = box.left + box.width / 2 - tip.offsetWidth / 2;
    const above = box.top - tip.offsetHeight - 8;
    tip.style.left = `${Math.min(Math.max(centred, 8), innerWidth - tip.offsetWidth - 8)}px`;
    tip.style.top = `${above > 8 ? above : box.bottom + 8}px`;
  };
  const near = (element) => element && element.closest ? element.closest("[data-tip]") : null;
  for (const name of ["pointerover", "focusin", "click"])
    document.addEventListener(name, (event) => show(near(event.target)));
  document.addEventListener("scroll", () => show(near(document.activeElement)), { passive: true });
  document.documentElement.dataset.ready = "yes";
})();

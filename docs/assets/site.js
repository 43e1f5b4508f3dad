// What axe asks of the theme: a name for its search dialog and for each landmark of a block of code, and a place in the
// order of the keyboard for everything that scrolls. The theme makes some of these elements after the page has been loaded.
function complete() {
  document.querySelector(".md-search")?.setAttribute("aria-label", "Search");
  document.querySelectorAll("nav.md-code__nav").forEach((nav, k) => nav.setAttribute("aria-label", `Code ${k + 1}`));
  const scrolls = ".md-typeset__scrollwrap, .md-typeset pre:not(:has(code)), .md-typeset p:has(> img[src*='gallery/'])";
  for (const wrap of document.querySelectorAll(scrolls)) {
    if (wrap.scrollWidth > wrap.clientWidth) wrap.tabIndex = 0;
  }
}
new MutationObserver(complete).observe(document.documentElement, {childList: true, subtree: true});
addEventListener("resize", complete);
addEventListener("load", complete);

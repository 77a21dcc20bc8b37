/* Corrections of roles and names that assistive programs read in the theme's pages. */
document.addEventListener("DOMContentLoaded", () => {
  // The label "Search" hides the keys that the button shows, so its text is the better name. The
  // button of narrow windows shows a lens without text and keeps the label.
  for (const button of document.querySelectorAll("button.search-button__button")) {
    if (button.closest(".navbar-persistent--mobile")) continue;
    if (button.textContent.trim()) button.removeAttribute("aria-label");
  }
  // A picture that scrolls to the side can be scrolled by the keyboard, too.
  for (const picture of document.querySelectorAll(".bd-content .picture")) {
    if (picture.scrollWidth <= picture.clientWidth) continue;
    picture.tabIndex = 0;
    picture.setAttribute("role", "region");
    picture.setAttribute("aria-label", "A picture that scrolls to the side");
  }
  // The fold of a cell shows "Show code cell source", so this text is the better name.
  for (const fold of document.querySelectorAll("details.hide > summary[aria-label]")) {
    if (fold.textContent.trim()) fold.removeAttribute("aria-label");
  }
  // A list may have list items as children only.
  for (const item of document.querySelectorAll(".citation-list > .citation")) {
    item.setAttribute("role", "listitem");
  }
  // The sign that opens a part of the menu has no text of its own.
  for (const sign of document.querySelectorAll("summary > .toctree-toggle")) {
    const page = sign.closest("li").querySelector("a").textContent;
    sign.parentElement.setAttribute("aria-label", `Pages under ${page}`);
  }
  // The parameters of a long signature are a list without terms.
  for (const parameters of document.querySelectorAll("dt.sig dl")) {
    parameters.setAttribute("role", "list");
    for (const parameter of parameters.children) parameter.setAttribute("role", "listitem");
  }
});

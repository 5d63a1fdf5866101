/* A browser does not let a page read files beside it, so where the site is opened as files, results of a search come
   without a passage of their page; they then say where the page is. */
if (location.protocol === "file:") {
  DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
  const place = (item) => {
    const link = item.querySelector("a");
    if (!link || item.querySelector("span")) return;
    const where = document.createElement("span");
    where.textContent = ` (${link.getAttribute("href").replace(/\.html.*$/, "").replaceAll("/", " / ")})`;
    link.after(where);
  };
  addEventListener("DOMContentLoaded", () => {
    const results = document.getElementById("search-results");
    if (!results) return;
    new MutationObserver(() => results.querySelectorAll("li").forEach(place)).observe(results, {
      childList: true,
      subtree: true,
    });
  });
}

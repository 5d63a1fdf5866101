/* How the search ranks: as Sphinx does, but guides that have the word come before names that contain it. */
var Scorer = {
  score: ([docname, title, anchor, descr, score]) => (/^(guides\/|start$|choose$)/.test(docname) ? score + 18 : score),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};

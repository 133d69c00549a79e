// All views, in the order of the navigation; each is loaded when it is first shown. A view's file exports
//
//   export const view = {id, title, about, needs, mount(root, {api, params, setParams, models, model, choose}) → unmount()}
//
// `needs` names what a model must be able to do ("fill"), or several of which one will do, or is null.
// `model` is the chosen model that can do it, `choose(name)` chooses another.

export const groups = [
  {
    title: "Look",
    views: [
      { id: "fill", title: "Fill", load: () => import("./fill.js") },
      { id: "layers", title: "Layers", load: () => import("./layers.js") },
      { id: "inside", title: "Inside", load: () => import("./inside.js") },
      { id: "senses", title: "Senses", load: () => import("./senses.js") },
      { id: "compare", title: "Compare words", load: () => import("./compare.js") },
    ],
  },
  {
    title: "Explain",
    views: [
      { id: "why", title: "Why", load: () => import("./why.js") },
      { id: "swap", title: "Swap", load: () => import("./swap.js") },
      { id: "probe", title: "Probe", load: () => import("./probe.js") },
    ],
  },
  {
    title: "Work",
    views: [
      { id: "search", title: "Search", load: () => import("./search.js") },
      { id: "label", title: "Label", load: () => import("./label.js") },
      { id: "learn", title: "Learn", load: () => import("./learn.js") },
      { id: "runs", title: "Runs", load: () => import("./runs.js") },
      { id: "card", title: "Card", load: () => import("./card.js") },
    ],
  },
];

export const views = groups.flatMap((group) => group.views);

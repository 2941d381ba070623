/** The address of the current view: `#training?run=A&run=B` is the view `training` with two values of `run`. */
export class Route {
  constructor(hash = location.hash) {
    const [view, query] = hash.slice(1).split(/\?(.*)/s);
    this.view = view || "overview";
    this.params = new URLSearchParams(query);
  }

  get = (name, fallback = null) => this.params.get(name) ?? fallback;
  all = (name) => [...new Set(this.params.getAll(name))];

  /** The address with changed parameters; an empty list removes one. */
  href(changes) {
    const params = new URLSearchParams(this.params);
    for (const [name, value] of Object.entries(changes)) {
      params.delete(name);
      for (const one of [value].flat()) params.append(name, one);
    }
    return `#${this.view}${params.size > 0 ? `?${params}` : ""}`;
  }

  /** Changes the address without redrawing, for settings that a view applies itself. */
  note(changes) {
    history.replaceState(null, "", this.href(changes));
    this.params = new Route().params;
  }
}

export const href = (view, params = {}) => new Route(`#${view}`).href(params);
export const go = (view, params) => {
  location.hash = href(view, params);
};

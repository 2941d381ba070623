/**
 * The views of the page, in order. A view is one file that exports
 *   {id, title, mount(body, store), isShown(store)?}
 * `mount` fills its section once and listens to the store's `selection` events where it shows the selected run.
 */

import anomalies from "./anomalies.mjs";
import checklist from "./checklist.mjs";
import loss from "./loss.mjs";
import pipeline from "./pipeline.mjs";
import problems from "./problems.mjs";
import runDetails from "./run_details.mjs";
import runs from "./runs.mjs";
import streams from "./streams.mjs";

export const VIEWS = [pipeline, streams, anomalies, loss, runs, runDetails, checklist, problems];

"""The documents of the training dashboard, and what exports them. Modules import only modules above them in this list,
which has the lowest first:

- `detail_documents`: scores over time, details of events, quality of files
- `run_documents`: runs
- `fleet_documents`: the machines of a fleet
- `state_documents`: the state of the workspace, the document of the first page
- `inputs`: the promoted weights and the latest scoring
- `verdict`: the state of each stage, and the lights of the streams
- `hardware`: automatic decisions of a run, and the device record
- `migrations`: migrated notebooks
- `series`: scores over time at two resolutions
- `publish`: writes documents, and removes those without references
- `quality`: quality reports
- `runs`: run folders as records
- `annotating`: adds annotations and updates the exported state
- `single_file`: the page and its data as one file
"""

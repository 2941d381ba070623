"""Commands that work on a complete workspace. Modules import only modules above them in this list, which has the lowest
first:

- `folders`: files in folders that change meanwhile
- `problems`: reads documents; what cannot be read is listed
- `checklist`: the results of all checks
- `colour`: colours of reports on a terminal
- `imported_models`: which models were trained elsewhere
- `stream_configs`: the configurations of both streams
- `init_workspace`: makes a workspace, and updates its page
- `open_lab`: JupyterLab in a workspace
- `completion`: completion in a shell
- `sample_data`: the sample data
- `devices`: the device report
- `pool_sensors`: one data set of the sensors of many machines
- `own_files`: files of a user in any folder
- `data_findings`: what is unusual in files and channels
- `readiness`: what each split of the data has and needs
- `check_data`: the command `landfall check`
- `check_data_quality`: the command `landfall quality`
- `list_runs`: the runs of a workspace
- `promote_run`: makes the weights of a run the model in use
- `tag_run`: tags and notes of a run
- `imported_checks`: checks of files before they are imported
- `import_artifacts`: imports the outputs of runs on Colab
- `notebook_parameters`: parameters of a notebook
- `notebook_page`: an executed notebook as a page
- `kernel_watch`: memory and end of a kernel
- `execute_notebook`: executes a notebook
- `steps`: the steps of the pipeline, and its stages
- `dashboard`: the documents of the dashboard
- `serve_dashboard`: the server of the dashboard
- `export_training_dashboard_state`: the export of the dashboard
- `checks`: the checks of a workspace
- `validate_training_outputs`: the validation checklist
- `fleet`: one command on many machines
- `run_summary`: the summary of a run of the pipeline
- `run_local_training_pipeline`: the pipeline
"""

import sys

# nbformat imports jsonschema, which builds 38 grammars for addresses if this package is installed. That takes 1.3 s in
# every process that opens a notebook, and no schema of a notebook or of Landfall uses those formats.
sys.modules.setdefault("rfc3987_syntax", None)

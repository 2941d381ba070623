"""Monitoring of new data in real time. Layers, lowest first:

- `monitor`: the detector and model of a monitor, and the scores of some rows
- `running_detector`: scores along rows that come in pieces
- `running_events`: events along scores
- `journal`: files of JSON lines in which no line is lost or repeated
- `live_document`: the document of a monitor for the dashboard
- `state_file`: the stored state
- `delivery`: sends events to a webhook or a command
- `mqtt`: writes rows of an MQTT broker to csv files
- `growing_table`: csv files to which rows are appended
- `followed_file`: the rows, scores and events of one growing file of process sensors
- `followed_recording`: the scores and events of one complete recording of vibration
- `watching`: all files of a stream
- `command`: the command `landfall watch`
"""

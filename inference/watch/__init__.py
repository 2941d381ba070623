"""Monitoring as it happens. Layers, lowest first:

- `monitor`: what scores files, and what they give
- `running_detector`: scores along rows that come in pieces
- `running_events`: events along scores
- `journal`: files of JSON lines in which no line is lost or repeated
- `event_table`: closed events as a table
- `live_document`: what the dashboard shows of a monitor
- `state_file`: the stored state
- `delivery`: events to a webhook or a command
- `mqtt`: rows of an MQTT broker to csv files
- `followed_file`: the rows, scores and events of one growing file of process sensors
- `followed_recording`: the scores and events of one complete recording of vibration
- `watching`: all files of a stream
- `command`: the command `landfall watch`
"""

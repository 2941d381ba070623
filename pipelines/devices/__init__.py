"""`landfall devices`: the hardware, what a run would use, and recommendations. Modules import only modules above them
in this list, which has the lowest first:

- `document`: the report as a document
- `frameworks`: installed frameworks and their devices
- `costs`: estimated costs
- `advice`: recommendations
- `doctor`: tests of the devices and the disk
- `fitting`: the device profile for this machine, and the batches of earlier runs
- `report`: the report
- `text`: the report as text
- `command`: the command
"""

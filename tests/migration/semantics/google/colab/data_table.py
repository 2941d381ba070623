"""Interactive tables."""


class DataTable:
    def __init__(self, dataframe, include_index=None, num_rows_per_page=None, max_rows=None, max_columns=None,
                 min_width=None):  # fmt: skip
        self._dataframe = dataframe

    def __repr__(self):
        return repr(self._dataframe)


def enable_dataframe_formatter():
    pass


def disable_dataframe_formatter():
    pass


def load_ipython_extension(ipython):
    pass

"""What is preinstalled on Colab: packages of Python by their modules and commands, and of the system.

The facts are from https://github.com/googlecolab/backend-info: its lists of 2026-08-19, and packages of its earlier
ones, from 2022 on, that notebooks still import.
"""

from __future__ import annotations

import re

# The pip name is the module name, with `-` for `_`, and in `google` for `.`.
SAME_NAME = frozenset(
    re.findall(
        r"\S+",
        """
    absl-py accelerate affine aiofiles aiohttp aiosqlite albumentations ale-py alembic altair anthropic anywidget
    appdirs arch array-record arrow arviz astor astropy astunparse attrs audioread authlib autograd babel beartype
    bigframes bigquery-magics bleach blinker blis blobfile blosc2 bokeh bottleneck bqplot branca brotli
    cached-property cachetools catalogue catboost certifi cffi cftime chardet charset-normalizer chex clarabel click
    cloudpathlib cloudpickle cmdstanpy colorcet colorlover confection contextlib2 contourpy convertdate cryptography
    cufflinks curl-cffi cvxopt cvxpy cycler cython dask datascience datasets decorator defusedxml descartes
    diffusers dill diskcache distrax distributed distro dlib dm-tree docstring-parser docutils duckdb easydict ecos
    editdistance eerepr einops ephem esda etils fastai fastapi fastcore fastdownload fastdtw fastprogress ffmpy
    filelock fiona firebase-admin flask flatbuffers flax folium fonttools frozendict fsspec future fuzzywuzzy gast
    gcsfs gdown geemap gensim geocoder geographiclib geopandas geopy giddy glob2 google-adk
    google-ai-generativelanguage google-api-core google-auth google-auth-httplib2 google-auth-oauthlib
    google-cloud-aiplatform google-cloud-bigquery google-cloud-bigquery-connection google-cloud-bigquery-storage
    google-cloud-bigtable google-cloud-dataproc google-cloud-datastore google-cloud-discoveryengine
    google-cloud-firestore google-cloud-functions google-cloud-language google-cloud-logging google-cloud-monitoring
    google-cloud-pubsub google-cloud-spanner google-cloud-speech google-cloud-storage google-cloud-translate
    google-genai google-generativeai gradio gradio-client grain graphviz greenlet gspread gspread-dataframe gym
    gymnasium h5netcdf h5py hdbscan highspy holidays holoviews html5lib httpimport httplib2 httpx huggingface-hub
    humanize hyperopt igraph imagehash imageio imageio-ffmpeg imgaug immutabledict importlib-metadata
    importlib-resources imutils inequality inflect intervaltree ipyevents ipyfilechooser ipykernel ipyleaflet
    ipyparallel ipython ipywidgets jax jaxlib jellyfish jieba jinja2 joblib jpeg4py jsonpatch jsonpickle jsonschema
    jupytext kaggle kagglehub kapre keras keras-hub keras-nlp keras-preprocessing keyring kiwisolver langchain
    langchain-core langchain-text-splitters langcodes langgraph langsmith lark libpysal librosa lightgbm llvmlite
    lmdb locket lxml mako mapclassify markdown markupsafe marshmallow matplotlib matplotlib-venn mcp mgwr missingno
    mistune mizani ml-dtypes mlxtend mmh3 momepy more-itertools moviepy mpmath msgpack multidict multimethod
    multipledispatch multiprocess music21 narwhals natsort nbclient nbconvert nbformat nest-asyncio netcdf4 networkx
    nibabel nltk numba numexpr numpy nvtx oauth2client oauthlib omegaconf openai openpyxl opt-einsum optax optree
    orjson osqp packaging palettable pandas pandas-datareader pandas-gbq pandas-profiling panel param partd patsy
    peewee peft pexpect phik pickleshare pip platformdirs plotly plotnine pluggy ply pointpats polars pooch
    portpicker prefetch-generator prettytable proglog progressbar2 prometheus-client promise prompt-toolkit prophet
    psutil pulp py4j pyarrow pycocotools pycparser pydantic pydantic-settings pydata-google-auth pydot pydotplus
    pydub pygame pygit2 pygments pyiceberg pymc pymongo pymysql pymystem3 pynndescent pyogrio pyomo pyparsing
    pyperclip pyproj pysal pyspark pystan pytensor pytest pytz pyviz-comms qdldl quantecon rasterio rasterstats
    regex requests requests-oauthlib requests-toolbelt resampy rich rpy2 rsa rtree safetensors scipy scs seaborn
    segregation sentence-transformers sentencepiece sentry-sdk setproctitle setuptools shap shapely simple-parsing
    simplejson six sklearn-pandas smart-open snowballstemmer sortedcontainers soundfile soxr spacy spaghetti spglm
    sphinx spint splot spopt spreg sqlalchemy sqlglot sqlparse srsly stanio starlette statsmodels stumpy sympy
    tables tabulate tblib tenacity tensorboard tensorflow tensorflow-datasets tensorflow-decision-forests
    tensorflow-estimator tensorflow-gcs-config tensorflow-hub tensorflow-metadata tensorflow-probability
    tensorflow-text tensorstore termcolor text-unidecode textblob tf-keras tf-slim thinc threadpoolctl tifffile
    tiktoken timm tinycss2 tobler tokenizers toml tomli tomlkit toolz torch torch-xla torchao torchaudio torchcodec
    torchdata torchsummary torchtext torchtune torchvision tornado tqdm traitlets transformers trax treelite
    treescope triton tsfresh tweepy typeguard typer typing-extensions tzlocal ujson uritemplate urllib3 uvicorn
    uvloop vega-datasets wandb wasabi watchdog wcwidth weasel webcolors websockets werkzeug widgetsnbextension
    wordcloud wrapt wurlitzer xarray xarray-einstats xgboost xlrd xlwt xxhash xyzservices yarl ydf yellowbrick
    yfinance zict zstandard
    """,
    )
)
OTHER_NAMES = {
    "Crypto": "pycryptodome",
    "Cryptodome": "pycryptodomex",
    "OpenGL": "PyOpenGL",
    "OpenSSL": "pyOpenSSL",
    "PIL": "pillow",
    "absl": "absl-py",
    "apiclient": "google-api-python-client",
    "attr": "attrs",
    "box": "python-box",
    "bs4": "beautifulsoup4",
    "bson": "pymongo",
    "community": "python-louvain",
    "cpuinfo": "py-cpuinfo",
    "cucim": "cucim-cu12",
    "cudf": "cudf-cu12",
    "cuml": "cuml-cu12",
    "cupy": "cupy-cuda12x",
    "cuvs": "cuvs-cu12",
    "cv2": "opencv-python",
    "dask_cudf": "dask-cudf-cu12",
    "dateutil": "python-dateutil",
    "dns": "dnspython",
    "docx": "python-docx",
    "dopamine": "dopamine-rl",
    "dotenv": "python-dotenv",
    "ee": "earthengine-api",
    "erfa": "pyerfa",
    "faiss": "faiss-cpu",
    "fasthtml": "python-fasthtml",
    "feather": "feather-format",
    "gin": "gin-config",
    "git": "GitPython",
    "google.cloud.dataproc_spark_connect": "dataproc-spark-connect",
    "google.cloud.pubsub_v1": "google-cloud-pubsub",
    "google.cloud.resourcemanager": "google-cloud-resource-manager",
    "google.cloud.secretmanager": "google-cloud-secret-manager",
    "google.oauth2": "google-auth",
    "google.protobuf": "protobuf",
    "google_drive_downloader": "googledrivedownloader",
    "googleapiclient": "google-api-python-client",
    "googlesearch": "google",
    "gridfs": "pymongo",
    "grpc": "grpcio",
    "ibis": "ibis-framework",
    "imblearn": "imbalanced-learn",
    "jwt": "PyJWT",
    "kanren": "miniKanren",
    "magic": "python-magic",
    "markdown_it": "markdown-it-py",
    "mpl_toolkits": "matplotlib",
    "opentelemetry": "opentelemetry-api",
    "opentelemetry.sdk": "opentelemetry-sdk",
    "orbax": "orbax-checkpoint",
    "osgeo": "gdal",
    "pkg_resources": "setuptools",
    "progressbar": "progressbar2",
    "psycopg2": "psycopg2-binary",
    "pydrive": "PyDrive",
    "pydrive2": "PyDrive2",
    "pylab": "matplotlib",
    "pynvml": "nvidia-ml-py",
    "pywt": "PyWavelets",
    "pyximport": "cython",
    "rmm": "rmm-cu12",
    "shapefile": "pyshp",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "slugify": "python-slugify",
    "snappy": "python-snappy",
    "snowflake.connector": "snowflake-connector-python",
    "socks": "PySocks",
    "spanner_graphs": "spanner-graph-notebook",
    "sql": "ipython-sql",
    "tree": "dm-tree",
    "umap": "umap-learn",
    "vertexai": "google-cloud-aiplatform",
    "websocket": "websocket-client",
    "yaml": "PyYAML",
    "zmq": "pyzmq",
}
# Commands of packages that are preinstalled on Colab.
PROGRAMS = {
    "accelerate": "accelerate",
    "cmake": "cmake",
    "cython": "cython",
    "earthengine": "earthengine-api",
    "gdown": "gdown",
    "hf": "huggingface-hub",
    "huggingface-cli": "huggingface-hub",
    "ipcluster": "ipyparallel",
    "jupyter-nbconvert": "nbconvert",
    "jupytext": "jupytext",
    "kaggle": "kaggle",
    "pytest": "pytest",
    "tensorboard": "tensorboard",
    "torchrun": "torch",
    "transformers-cli": "transformers",
    "uv": "uv",
    "uvicorn": "uvicorn",
    "wandb": "wandb",
}
# Packages of the system, without programs that most machines have, such as git and unzip: the programs, the modules and
# packages of Python that need them, and other packages with the same programs.
SYSTEM_PACKAGES = {
    name: (frozenset(programs.split()), frozenset(needed_by.split()), re.compile("".join(others)))
    for name, programs, needed_by, *others in (
        ("build-essential", "g++ gcc make", "", r"(?:clang|gcc|g\+\+)(?:-\d+)?|make"),
        (
            *("default-jdk-headless", "jar java javac"),
            "h2o konlpy language-tool-python pyserini pyspark pyterrier python-terrier tabula tabula-py tika",
            r"(?:default|openjdk-\d+)-j(?:dk|re)\b.*",
        ),
        (
            *("ffmpeg", "ffmpeg ffplay ffprobe whisper youtube-dl yt-dlp"),
            "ffmpeg ffmpeg-python openai-whisper pydub spleeter stable-whisper whisper whisperx youtube-dl yt-dlp",
        ),
        ("git-lfs", "git-lfs", ""),
        ("graphviz", "circo dot fdp neato sfdp twopi", "graphviz pydot pydotplus pygraphviz torchviz"),
        ("libgdal-dev", "", "gdal"),
        ("nodejs", "node", "", "npm"),
        ("npm", "npm npx", "", "nodejs"),
        ("nvidia-cuda-toolkit", "nvcc", "", r"cuda(?:-.*)?|nvidia-cuda-.*"),
        ("p7zip-full", "7z 7za 7zr", "", r"7zip|p7zip"),
        ("pandoc", "pandoc", "pypandoc"),
        ("r-base-core", "Rscript", "rpy2", r"r-base.*"),
        ("tesseract-ocr", "tesseract", "pytesseract", r"tesseract-ocr-.*"),
        ("unrar", "unrar", "rarfile", r"unrar-.*"),
        ("xvfb", "Xvfb xvfb-run", "pyvirtualdisplay xvfbwrapper"),
    )
}

"""Route to the pages: what is the same on every page stands here. Run by ``lastgood console``, never by itself."""

from base64 import b64encode
from importlib.resources import files

import streamlit as st

from lastgood_console.components.command import copy_script
from lastgood_console.components.css import stylesheet
from lastgood_console.hearing import gone_note
from lastgood_console.pause import news, pause_switch
from lastgood_console.sign_in import gate, sign_out_button

HERE = files("lastgood_console")

# the icon comes with the page: what Streamlit serves as a file is for those who are signed in
icon = b64encode((HERE / "assets" / "favicon.png").read_bytes()).decode()
st.set_page_config(page_title="lastgood", page_icon=f"data:image/png;base64,{icon}", layout="wide")
st.logo(str(HERE / "assets" / "wordmark.svg"), size="medium")
st.html(stylesheet())
gate()

overview = st.Page("views/overview.py", title="Overview", default=True)
incident = st.Page("views/incident.py", title="Incident", url_path="incident")
nodes = st.Page("views/nodes.py", title="Nodes", url_path="nodes")
checkpoints = st.Page("views/checkpoints.py", title="Checkpoints", url_path="checkpoints")
alerts = st.Page("views/alerts.py", title="Alerts", url_path="alerts")
runbook = st.Page("views/runbook.py", title="Runbook", url_path="runbook", visibility="hidden")
page = st.navigation([overview, incident, nodes, checkpoints, alerts, runbook], position="top")
with st.container(key="lg-tools", horizontal=True):
    sign_out_button()
    pause_switch()
if gone := gone_note((snapshot := news()[0]).gone, snapshot.read_at):
    st.html(gone)
page.run()
st.html(copy_script(), unsafe_allow_javascript=True)  # our own words alone; last, since it takes a line of the page

"""The view of a fleet, and the pages of its machines, from the server of the fleet."""

from __future__ import annotations

import http.client
from datetime import UTC, datetime
from urllib.parse import urlsplit

import pytest

from pipelines.dashboard.fleet_documents import FILE, FleetMachine, FleetState
from pipelines.dashboard.publish import write_document
from pipelines.export_training_dashboard_state import export_state
from tests.dashboard.browsing import expect, first_cells, serving, settle
from tests.dashboard.builders import build_workspace
from tests.support.small_workspace import install_page

MANY = 500


@pytest.fixture(scope="module")
def plant(tmp_path_factory):
    """The address of a fleet of many machines, of which one has a page, with events."""
    root = tmp_path_factory.mktemp("plant")
    own = root / "machines/press-0"
    build_workspace(own)
    for each in (root, own):
        install_page(each)
    export_state(own)
    for folder in (root, own):
        (folder / "configs").mkdir(exist_ok=True)
        (folder / "configs/x.yaml").write_text("secret: 1")
    machines = [
        FleetMachine(
            id=f"press-{number}", stream="patchtst", tags=["odd"] if number % 2 else [],
            state="open events" if number < 3 else "no event", attention=["1 open event"] if number < 3 else [],
            open_events=int(number < 3), severity=9.0 - number if number < 3 else None,
            page="machines/press-0/" if number == 0 else None,
        )
        for number in range(MANY)
    ]  # fmt: skip
    data = root / "training_dashboard/data"
    write_document(data / FILE, FleetState(generated_at=datetime.now(UTC), machines=machines))
    export_state(root)
    with serving(root / "training_dashboard") as url:
        yield url


@pytest.mark.slow
@pytest.mark.browser
def test_many_machines_are_ranked_filtered_and_lead_to_their_pages(plant, visit):
    page = visit(plant)
    assert page.locator("nav [aria-current]").inner_text() == "Fleet"
    page.locator("#machines tbody tr").nth(MANY - 1).wait_for()
    assert [text.split("\n")[0] for text in first_cells(page, "machines")[:3]] == ["press-0", "press-1", "press-2"]
    page.locator("#machines-filter").fill("open odd")
    expect(page.locator("#machines tbody tr")).to_have_count(1)
    page.locator("#machines-filter").fill("")
    page.get_by_role("link", name="press-0", exact=True).click()
    page.wait_for_selector("#view[aria-busy=false][data-view=overview]")
    settle(page)
    assert page.url.startswith(f"{plant}machines/press-0/")
    assert "open events" in page.locator("main").inner_text().lower()
    assert page.complaints == []


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/machines/press-0/", 200),
        ("/machines/press-0/data/dashboard-state.json", 200),
        ("/machines/press-0/../configs/x.yaml", 404),
        ("/machines/press-0/%2e%2e/runs", 404),
        ("/machines/%2e%2e/configs/x.yaml", 404),
        ("/machines/absent/", 404),
    ],
)
def test_only_the_pages_of_machines_are_served(plant, path, status):
    address = urlsplit(plant)
    connection = http.client.HTTPConnection(address.hostname, address.port)
    connection.request("GET", path)
    assert connection.getresponse().status == status

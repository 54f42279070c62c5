"""What the tests against a real engine share."""

import pytest

from provider import Provider

MINIMAL = "sandbox-provider/minimal"


@pytest.fixture
async def provider(workspace):
    """A provider over the small image, with everything else at its default."""
    async with Provider(workspace, image=MINIMAL) as provider:
        yield provider

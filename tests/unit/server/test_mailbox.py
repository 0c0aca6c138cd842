import asyncio
import threading
import time

from ninfer.core.request import StartedEvent
from ninfer.server.generation.mailbox import Mailbox


def event(number: int) -> StartedEvent:
    return StartedEvent(request_id="r", num_cached_tokens=number)


def test_events_of_other_threads_arrive_all_and_in_order():
    async def run() -> list[int]:
        mailbox = Mailbox(asyncio.get_running_loop())

        def write() -> None:
            for number in range(2000):
                mailbox.put(event(number))
                if number % 97 == 0:
                    time.sleep(0.0005)

        thread = threading.Thread(target=write)
        thread.start()
        got: list[int] = []
        while len(got) < 2000:
            taken = await mailbox.take(5)
            assert taken, "an event was lost"
            got += [item.num_cached_tokens for item in taken]
        thread.join()
        return got

    assert asyncio.run(run()) == list(range(2000))


def test_nothing_comes_when_the_time_is_over():
    async def run() -> None:
        mailbox = Mailbox(asyncio.get_running_loop())
        assert await mailbox.take(0.01) == []
        mailbox.put(event(1))
        assert len(await mailbox.take(5)) == 1
        assert await mailbox.take(0.01) == []

    asyncio.run(run())


def test_a_closed_loop_is_no_error_for_the_engine():
    loop = asyncio.new_event_loop()
    mailbox = Mailbox(loop)
    loop.close()
    mailbox.put(event(1))

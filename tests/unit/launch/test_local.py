"""What a rank finds, and what it leaves behind."""

import pytest

from paceline.errors import ConfigError
from paceline.launch.local import start


def test_each_rank_is_called_once_with_its_place(script):
    printed, said = script.run(
        """
        def function(place):
            print(json.dumps([place.rank, place.size, place.local_rank, place.local_size,
                              place.node, place.nodes, place.launcher, place.address, place.started,
                              place.listen_fd is not None]))
        report(function, 3, started=7.5)
        """
    )
    places = [
        f'[{rank}, 3, {rank}, 3, 0, 1, "local", "127.0.0.1", 7.5, {str(not rank).lower()}]'
        for rank in range(3)
    ]
    assert sorted(printed) == places
    assert said["raised"] is None


def test_one_rank_is_no_special_case(script):
    printed, said = script.run("report(lambda place: print(place.rank, place.size), 1)")
    assert printed == ["0 1"]
    assert said["raised"] is None


def test_the_launcher_may_do_something_of_its_own_while_the_ranks_run(script):
    printed, said = script.run(
        """
        ticks = []
        report(lambda place: time.sleep(0.1), 2, tick=lambda: ticks.append(os.getpid()))
        assert set(ticks) == {os.getpid()}

        def failing():
            raise ValueError("in the launcher")
        report(lambda place: time.sleep(60), 2, tick=failing)
        """
    )
    assert '"raised": null' in printed[0]
    assert said["text"] == "in the launcher"
    assert said["seconds"] < 15


def test_no_rank_is_refused():
    with pytest.raises(ConfigError, match="at least 1"):
        start(print, 0, threads=1)


def test_the_variables_are_exported_and_understood(script):
    printed, _ = script.run(
        """
        from paceline.launch.environment import current
        def function(place):
            seen = current()
            print(seen.rank, seen.size, seen.launcher, seen.port == place.port, seen.started,
                  os.environ["OMP_NUM_THREADS"], os.environ["GLOO_SOCKET_IFNAME"])
        report(function, 2, started=7.5)
        """
    )
    assert sorted(printed) == ["0 2 local True 7.5 1 lo", "1 2 local True 7.5 1 lo"]


def test_rank_0_holds_a_listening_socket_on_loopback_and_nobody_else_does(script):
    printed, said = script.run(
        """
        import socket
        def function(place):
            if place.rank == 0:
                with socket.socket(fileno=place.listen_fd) as listener:
                    assert listener.getsockname() == ("127.0.0.1", place.port)
                    listener.settimeout(10)
                    for _ in range(place.size - 1):
                        connection, _ = listener.accept()
                        print(connection.recv(1).decode())
                        connection.close()
            else:
                mine = os.listdir("/proc/self/fd")
                files = [os.path.realpath(f"/proc/self/fd/{number}") for number in mine]
                assert not [name for name in files if "socket" in name], files
                with socket.create_connection((place.address, place.port), timeout=10) as connection:
                    connection.sendall(str(place.rank).encode())
        report(function, 3)
        """
    )
    assert said["raised"] is None, said
    assert sorted(printed) == ["1", "2"]


def test_buffered_text_appears_once_and_a_ranks_own_is_flushed(script):
    printed, _ = script.run(
        """
        sys.stdout.write("before\\n")
        report(lambda place: sys.stdout.write(f"rank {place.rank}\\n"), 2)
        """
    )
    assert sorted(printed) == ["before", "rank 0", "rank 1"]


def test_exit_handlers_run_where_they_were_registered(script):
    process = script.begin(
        """
        import atexit
        atexit.register(print, "launcher")
        report(lambda place: atexit.register(print, f"rank {place.rank}"), 2)
        """
    )
    out, _ = process.communicate(timeout=30)
    assert sorted(out.splitlines()[:2]) == ["rank 0", "rank 1"]
    assert out.splitlines()[3:] == ["launcher"]


def test_standard_input_is_empty_in_a_rank(script):
    printed, _ = script.run("report(lambda place: print(repr(sys.stdin.read())), 2)")
    assert printed == ["''", "''"]


def test_the_launchers_objects_are_kept_from_a_ranks_garbage_collector(script):
    """A collection writes to every object that it looks at, so every rank would copy what it shares."""
    printed, _ = script.run(
        """
        import gc
        report(lambda place: print(gc.get_freeze_count() > 1000), 2)
        assert gc.get_freeze_count() == 0
        report(print, 1)
        """
    )
    assert printed[:2] == ["True", "True"]


def test_handlers_and_files_are_as_before_after_many_starts(script):
    _, said = script.run(
        """
        def state():
            handlers = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)]
            return len(os.listdir("/proc/self/fd")), handlers, signal.pthread_sigmask(signal.SIG_BLOCK, [])
        def failing(place):
            if place.rank == 1:
                raise ValueError("on purpose")
        def attempt(number):
            try:
                start(failing if number == 3 else lambda place: None, 2, threads=1, deadline=20)
            except RankFailed as error:
                assert str(error) == "rank 1 raised ValueError: on purpose"
        before = state()
        for number in range(20):
            attempt(number)
        assert state() == before, (state(), before)
        children = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
        assert children == "", children
        report(lambda place: None, 2)
        """
    )
    assert said["raised"] is None


def test_a_process_with_native_threads_is_not_forked(script):
    script.folder.joinpath("thread.c").write_text(
        "#include <pthread.h>\n#include <unistd.h>\n"
        "static void *idle(void *x) { for (;;) pause(); return x; }\n"
        "int begin(void) { pthread_t t; return pthread_create(&t, 0, idle, 0); }\n"
    )
    printed, said = script.run(
        """
        import ctypes, shutil
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler:
            options = ["-shared", "-fPIC", "-pthread", "-o", "thread.so"]
            subprocess.run([compiler, *options, "thread.c"], check=True)
            assert ctypes.CDLL("./thread.so").begin() == 0
        print("compiled" if compiler else "no compiler")
        report(lambda place: print("ran"), 2)
        """
    )
    if printed == ["no compiler"]:
        pytest.skip("no C compiler")
    assert printed == ["compiled"]
    assert said["raised"] == "PacelineError"
    assert said["text"].startswith("bug: 1 native thread(s) run")


def test_a_thread_of_python_may_run_but_may_not_start_ranks(script):
    printed, said = script.run(
        """
        import threading
        over = threading.Event()
        threading.Thread(target=over.wait, daemon=True).start()
        second = threading.Thread(target=report, args=(print, 2))
        second.start()
        second.join()
        report(lambda place: print(place.rank), 2)
        """
    )
    assert "outside the main thread" in printed[0]
    assert sorted(printed[1:]) == ["0", "1"]
    assert said["raised"] is None


def test_too_many_processes_is_one_line_and_ends_those_that_run(script):
    _, said = script.run(
        """
        real, forks = os.fork, []
        def fork():
            forks.append(1)
            if len(forks) == 4:  # the first is the trial
                raise BlockingIOError(11, "Resource temporarily unavailable")
            return real()
        os.fork = fork
        report(lambda place: time.sleep(60), 4)
        """
    )
    assert said["text"].startswith("cannot start rank 2 of 4: Resource temporarily unavailable")
    assert said["seconds"] < 15

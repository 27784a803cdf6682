// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/world.hpp"

#include "vocabpipe/error.hpp"

#include <atomic>
#include <cstdio>
#include <new>

namespace vocabpipe {

World::World(std::unique_ptr<Implementation> implementation)
    : implementation_(std::move(implementation)) {}
World::World(World&&) noexcept = default;
World& World::operator=(World&&) noexcept = default;
World::~World() = default;

namespace {
/// Mailboxes grow with the square of the ranks: 0.6 GiB for 256.
constexpr int kMostThreads = 256;
}  // namespace

World World::threads(int ranks, WaitOptions wait) {
    if (ranks < 1) {
        throw UsageError("--ranks " + std::to_string(ranks) + ": must be at least 1");
    }
    if (ranks > kMostThreads) {
        throw UsageError("--ranks " + std::to_string(ranks) + ": must be at most " +
                         std::to_string(kMostThreads) +
                         " for threads of one process; use mpirun for more");
    }
    return World(threads::make_world(ranks, std::move(wait)));
}

World World::mpi(WaitOptions wait, MpiOptions options) {
#ifdef VOCABPIPE_WITH_MPI
    return World(mpi::make_world(std::move(wait), std::move(options)));
#else
    (void)wait;
    (void)options;
    throw UsageError(
        "--transport mpi: this build has no MPI; configure with "
        "-DVOCABPIPE_ENABLE_MPI=ON or use --transport threads");
#endif
}

int World::size() const {
    return implementation_->size();
}
void World::run(const std::function<void(Communicator&)>& body) {
    implementation_->run(body);
}
int World::run_program(const char* program, const std::function<void(Communicator&)>& body) {
    std::atomic<bool> owns_first = false;
    const auto report = [&](const char* what, ExitCode code) {
        std::fflush(stdout);
        std::fprintf(stderr, "%s: error: %s\n", program, what);
        return static_cast<int>(code);
    };
    const auto fail = [&](const char* what, ExitCode code) {
        const int reported = report(what, code);
        abort(reported);
        return reported;
    };
    try {
        run([&](Communicator& communicator) {
            if (communicator.rank() == 0) owns_first = true;
            body(communicator);
        });
    } catch (const AgreedError& error) {
        if (owns_first) return report(error.what(), error.exit_code());
        return static_cast<int>(error.exit_code());
    } catch (const Error& error) {
        return fail(error.what(), error.exit_code());
    } catch (const std::bad_alloc&) {
        return fail("out of memory; use a smaller model or microbatch, or fewer ranks per host",
                    ExitCode::out_of_memory);
    } catch (const std::exception& error) {
        return fail(error.what(), ExitCode::failed);
    }
    return 0;
}
void World::abort(int exit_code) noexcept {
    implementation_->abort(exit_code);
}

}  // namespace vocabpipe

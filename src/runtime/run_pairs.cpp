// SPDX-License-Identifier: Apache-2.0
// Overlapped pairs on a host: the second pass runs in a coroutine, while the first one waits for
// other ranks inside. Passes change only at such waits, so kernels keep all threads of the rank,
// and no two of them run at once. Each pass has its own links, so the order in which the two
// exchange need not be the same on all ranks. Neither waits for the other: the first runs whenever
// the second waits, and the second runs to its end after the first one, begun or not.
#include "src/runtime/run_step.hpp"
#include "src/runtime/wait.hpp"

namespace vocabpipe {

/// While the other pass of a pair runs: keeps what belongs to the pass that waits, and counts the
/// CPU time of the other as that of actions that ran inside.
class StepRunner::Away {
public:
    explicit Away(StepRunner& runner)
        : runner_(runner),
          streaming_pass_(runner.progress_.streaming_pass),
          nested_ns_(runner.local_cpu_ns_),
          cpu_ns_(thread_cpu_ns()) {
        runner.progress_.streaming_pass = StreamEdges::kNone;
    }
    ~Away() {
        runner_.progress_.streaming_pass = streaming_pass_;
        runner_.local_cpu_ns_ = nested_ns_ + thread_cpu_ns() - cpu_ns_;
    }
    Away(const Away&) = delete;
    Away& operator=(const Away&) = delete;

private:
    StepRunner& runner_;
    uint32_t streaming_pass_;
    int64_t nested_ns_;
    int64_t cpu_ns_;
};

/// The second passes of pairs have the links of their lane, whether they run beside the first or
/// after it, because other ranks may do the other.
Context& StepRunner::context_of(uint32_t index) {
    const bool second = !asynchronous_ && progress_.action(index).pair_member == 2;
    return second ? rank_.second_context : rank_.context;
}

PassRunner& StepRunner::runner_of(uint32_t index) {
    return &context_of(index) == &rank_.context ? passes_ : second_passes_;
}

/// Runs the first pass of a pair, and the second one as far as it has begun meanwhile.
void StepRunner::run_pair(uint32_t first) {
    const std::vector<uint32_t>& passes = progress_.loaded->queues[LoadedProgram::kPassQueue];
    const struct End {
        StepRunner& runner;
        ~End() {
            runner.second_of_pair_ = kAlone;
            runner.second_.cancel();  // after an error
        }
    } end{*this};
    second_of_pair_ = passes[progress_.head[LoadedProgram::kPassQueue] + 1];
    start(LoadedProgram::kPassQueue, first);
    second_of_pair_ = kAlone;  // from here on nothing else can run while the second one waits
    first_moved_ = true;
    if (second_.is_suspended()) (void)run_second();
}

bool StepRunner::run_other_lane(bool begins) {
    if (second_of_pair_ == kAlone) return false;
    if (!second_.is_inside()) {
        first_moved_ = begins;
        return run_second();
    }
    second_moved_ = begins;
    const Away away(*this);
    second_.suspend();
    return first_moved_;
}

/// Runs the second pass until it waits or ends; returns whether it has computed.
bool StepRunner::run_second() {
    second_moved_ = true;  // unless it comes from a wait that has found nothing again
    if (second_.is_suspended()) {
        const Away away(*this);
        second_.resume();
        return second_moved_;
    }
    const uint32_t* const next = progress_.ready(LoadedProgram::kPassQueue);
    if (next == nullptr || *next != second_of_pair_) return false;
    const Away away(*this);
    second_.start([this, index = *next] { start(LoadedProgram::kPassQueue, index); });
    return second_moved_;
}

}  // namespace vocabpipe

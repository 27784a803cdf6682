// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/executor.hpp"

#include "src/runtime/clock_alignment.hpp"
#include "src/runtime/executor_internals.hpp"
#include "src/runtime/run_step.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/tile_link.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

namespace vocabpipe {

class Executor::Implementation {
public:
    Implementation(Communicator& communicator, Device& device, const RankModules& modules,
                   const StepSizes& sizes, ExecutorOptions options)
        : communicator_(communicator),
          asynchronous_(device.asynchronous()),
          lanes_(device.open_lanes()),
          device_transport_(device.open_transport(communicator)),
          transport_(device_transport_ ? *device_transport_ : communicator.transport()),
          modules_(modules),
          sizes_(sizes),
          memory_(device, modules_, sizes_),
          device_(device),
          context_(device.context(options.threads, [this] { poll(); })),
          second_context_(context_.of_other_lane()),
          options_(std::move(options)),
          runner_({.communicator = communicator,
                   .device = device,
                   .lanes = *lanes_,
                   .transport = transport_,
                   .context = context_,
                   .second_context = *second_context_,
                   .modules = modules_,
                   .memory = memory_,
                   .options = options_}) {
        connect_teams(context_, 0);
        if (sizes.report_bytes > 0 && modules.step == nullptr) {
            throw UsageError(
                "executor: StepSizes::report_bytes requires an optimizer step, but "
                "RankModules::step is null; set it, or set report_bytes to 0");
        }
        const bool shares = std::ranges::any_of(sizes.buckets, [](const auto& of_rank) {
            return std::ranges::any_of(of_rank, [](const GradientBucket& bucket) {
                return bucket.shards_gradients || bucket.shards_weights;
            });
        });
        if (shares && modules.step == nullptr) {
            throw UsageError(
                "executor: ZeRO stages 2 and 3 require RankModules::step, which has the parts that "
                "ranks keep, but it is null; set it, or use stage 1");
        }
    }

    Implementation(const Implementation&) = delete;
    Implementation& operator=(const Implementation&) = delete;

    [[nodiscard]] size_t rank() const { return static_cast<size_t>(communicator_.rank()); }

    /// `ranks`: number of ranks that have programs.
    void check_ranks(size_t ranks) const {
        if (ranks == static_cast<size_t>(communicator_.size())) return;
        throw UsageError("executor: the programs are for " + std::to_string(ranks) +
                         " ranks, but the world has " + std::to_string(communicator_.size()) +
                         "; lower them for that number");
    }

    void load(const Program& program, const std::vector<Route>& routes, ProgramId id) {
        agree_on_hash(program);
        communicator_.agree([&] {
            memory_.reserve(program.arena_bytes,
                            "rank " + std::to_string(communicator_.rank()) + ": the arena");
        });
        with_peers([&] { transport_.prepare(routes); });
        if (!asynchronous_ && !has_second_links_ && has_pairs(program)) {
            connect_teams(*second_context_, 1);
            has_second_links_ = true;
        }
        if (id >= loaded_.size()) loaded_.resize(id + 1);
        loaded_[id] = std::make_unique<LoadedProgram>(program, asynchronous_);
        lanes_->load(program, id);
    }

    void run_step(std::span<const Microbatch> microbatches, ProgramId id) {
        LoadedProgram& program = loaded(id);
        if (abandoned_) {
            throw UsageError("executor: a step was abandoned, so no other can run; make another");
        }
        check_microbatches(program.program, microbatches);
        try {
            with_peers([&] { run_or_abandon(program, id, microbatches); });
        } catch (const DeviceError& error) {
            throw DeviceError("rank " + std::to_string(communicator_.rank()) + ": step " +
                              std::to_string(step_) + ": " + error.what());
        }
    }

    [[nodiscard]] const Program& program(ProgramId id) const { return loaded(id).program; }
    [[nodiscard]] const Timeline& timeline(ProgramId id) const { return loaded(id).timeline; }

    [[nodiscard]] Timeline gather_timeline(ProgramId id) {
        const std::vector<int64_t> ahead = clocks_ahead_of_rank_0(communicator_);
        Timeline all;
        all.spans = gathered(timeline(id).spans, ahead);
        all.piece_waits = gathered(timeline(id).piece_waits, ahead);
        return all;
    }

    [[nodiscard]] uint64_t arena_bytes() const { return memory_.arena_bytes(); }
    [[nodiscard]] Context& context() { return context_; }
    [[nodiscard]] Transport& transport() { return transport_; }
    void set_step(int64_t step) { step_ = step; }
    void observe(ActionObserver observer) {
        if (observer && asynchronous_) {
            throw UsageError("executor: actions of a device with streams cannot be observed");
        }
        runner_.observe(std::move(observer));
    }

private:
    /// Ranks that abandon a step wait for each other before any withdraws transfers that others
    /// still have open.
    void run_or_abandon(LoadedProgram& program, ProgramId id,
                        std::span<const Microbatch> microbatches) {
        try {
            runner_.run(program, id, microbatches, step_);
        } catch (const StepAbandoned&) {
            abandoned_ = true;
            communicator_.barrier();
            throw;
        }
    }

    static void check_microbatches(const Program& program,
                                   std::span<const Microbatch> microbatches) {
        if (microbatches.size() != program.tokens.size()) {
            throw UsageError("executor: the step has " + std::to_string(microbatches.size()) +
                             " microbatches, but the program was lowered for " +
                             std::to_string(program.tokens.size()));
        }
        for (size_t j = 0; j < microbatches.size(); ++j) {
            if (microbatches[j].size() == program.tokens[j]) continue;
            throw UsageError("executor: microbatch " + std::to_string(j) + " has " +
                             std::to_string(microbatches[j].size()) +
                             " tokens, but the program was lowered for " +
                             std::to_string(program.tokens[j]) +
                             "; plan a step of these lengths (StepWork::seq_lengths)");
        }
    }

    /// Whether passes of the rank run on two lanes. The other members of its teams run the same.
    static bool has_pairs(const Program& program) {
        return std::ranges::any_of(program.actions,
                                   [](const Action& action) { return action.pair_member > 0; });
    }

    void poll() {
        for (const auto& link : links_) link->poll();
        runner_.poll();
    }

    /// Gives the context of a lane its links to the ranks with which this rank computes layers.
    void connect_teams(Context& context, int lane) {
        const Mesh mesh = sizes_.mesh(communicator_.size() / sizes_.mesh(1).slices());
        for (const Axis axis : {Axis::tensor, Axis::context, Axis::expert}) {
            if (mesh.size_of(axis) == 1) continue;
            const TileLinkOptions options{
                .ranks = mesh.ranks_along(axis, mesh.place(communicator_.rank())),
                .poll = [this] { runner_.poll_within_pass(); },
                .other_lane = [this](bool begins) { return runner_.run_other_lane(begins); },
                .lane = lane};
            with_peers([&] {
                links_.push_back(device_.open_tile_link(transport_, communicator_.wait_options(),
                                                        options, axis));
            });
            context.set_link(axis, links_.back().get());
        }
    }

    /// Runs work that enqueues waits for other ranks: a step, or the first messages. After an error
    /// the caller frees memory (the arena here, weights elsewhere) before the other ranks learn of
    /// the error. So two things happen before the error leaves, in this order: this rank's
    /// transfers end or are withdrawn, so that nothing here waits for a peer and no peer touches
    /// memory of this rank; then the lanes drain, for which no peer is needed any more. Outside of
    /// these calls nothing that waits for a peer is enqueued.
    template <typename Work>
    void with_peers(Work&& work) {
        try {
            work();
        } catch (...) {
            transport_.cancel();
            lanes_->drain();
            throw;
        }
    }

    /// The values of all ranks, shifted to rank 0's time.
    template <typename Timed>
    [[nodiscard]] std::vector<Timed> gathered(const std::vector<Timed>& mine,
                                              const std::vector<int64_t>& ahead) {
        std::vector<Timed> all;
        for (const auto& part : communicator_.all_gather(std::as_bytes(std::span(mine)))) {
            const size_t begin = all.size();
            all.resize(begin + part.size() / sizeof(Timed));
            if (!part.empty()) std::memcpy(all.data() + begin, part.data(), part.size());
        }
        for (Timed& one : all) {
            one.begin_ns -= ahead[one.rank];
            one.end_ns -= ahead[one.rank];
        }
        return all;
    }

    [[nodiscard]] LoadedProgram& loaded(ProgramId id) const {
        if (id < loaded_.size() && loaded_[id]) return *loaded_[id];
        throw UsageError("executor: no programs have the number " + std::to_string(id) +
                         "; load() them first");
    }

    void agree_on_hash(const Program& program) {
        const auto mine = std::as_bytes(std::span(&program.hash, 1));
        const auto all = communicator_.all_gather(mine);
        for (size_t rank = 1; rank < all.size(); ++rank) {
            if (all[rank] == all.front()) continue;
            throw AgreedError(
                ExitCode::communication,
                "rank 0 and rank " + std::to_string(rank) +
                    " lowered different programs; start every rank with the same flags and binary");
        }
    }

    Communicator& communicator_;
    const bool asynchronous_;
    std::unique_ptr<Lanes> lanes_;
    std::unique_ptr<Transport> device_transport_;  ///< null: the communicator's is used
    Transport& transport_;
    const RankModules modules_;
    const StepSizes sizes_;
    StepMemory memory_;
    std::vector<std::unique_ptr<LoadedProgram>> loaded_;  ///< [ProgramId]
    int64_t step_ = 0;
    bool abandoned_ = false;
    Device& device_;
    Context context_;
    const std::unique_ptr<Context> second_context_;  ///< of the second passes of pairs
    const ExecutorOptions options_;
    std::vector<std::unique_ptr<TileLink>> links_;  ///< of both contexts
    bool has_second_links_ = false;
    StepRunner runner_;
};

Executor::Executor(Communicator& communicator, Device& device, const RankModules& modules,
                   const StepSizes& sizes, ExecutorOptions options)
    : implementation_(
          std::make_unique<Implementation>(communicator, device, modules, sizes, options)) {}
Executor::~Executor() = default;
void Executor::load(const Lowered& world, ProgramId id) {
    implementation_->check_ranks(static_cast<size_t>(world.mesh.size()));
    const auto rank = static_cast<int>(implementation_->rank());
    implementation_->load(world.of(rank), world.routes(), id);
}
void Executor::load(const std::vector<Program>& programs, ProgramId id) {
    implementation_->check_ranks(programs.size());
    implementation_->load(programs[implementation_->rank()], routes_of(programs), id);
}
void Executor::run_step(std::span<const Microbatch> microbatches, ProgramId id) {
    implementation_->run_step(microbatches, id);
}
const Program& Executor::program(ProgramId id) const {
    return implementation_->program(id);
}
const Timeline& Executor::timeline(ProgramId id) const {
    return implementation_->timeline(id);
}
Timeline Executor::gather_timeline(ProgramId id) {
    return implementation_->gather_timeline(id);
}
uint64_t Executor::arena_bytes() const {
    return implementation_->arena_bytes();
}
Context& Executor::context() {
    return implementation_->context();
}
Transport& ExecutorInternals::transport(Executor& executor) {
    return executor.implementation_->transport();
}
void ExecutorInternals::observe(Executor& executor, ActionObserver observer) {
    executor.implementation_->observe(std::move(observer));
}
void Executor::set_step(int64_t step) {
    implementation_->set_step(step);
}

}  // namespace vocabpipe

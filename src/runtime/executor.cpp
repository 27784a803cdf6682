// SPDX-License-Identifier: Apache-2.0
#include "vocabpipe/executor.hpp"

#include "kernels/operators.hpp"
#include "src/runtime/clock_alignment.hpp"
#include "src/runtime/device_batch.hpp"
#include "src/runtime/lanes.hpp"
#include "src/runtime/loaded_program.hpp"
#include "src/runtime/transport/transport.hpp"
#include "src/runtime/wait.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace vocabpipe {

class Executor::Implementation {
public:
    Implementation(Communicator& communicator, Device& device, const RankModules& modules,
                   const StepSizes& sizes, ExecutorOptions options)
        : communicator_(communicator),
          device_(device),
          lanes_(device.open_lanes()),
          device_transport_(device.open_transport(communicator)),
          transport_(device_transport_ ? *device_transport_ : communicator.transport()),
          modules_(modules),
          sizes_(sizes),
          options_(options),
          context_(device.context(options.threads, [this] { poll(); })) {
        if (sizes.report_bytes > 0 && modules.step == nullptr) {
            throw UsageError(
                "executor: StepSizes::report_bytes asks for an optimizer step, but "
                "RankModules::step is null; set one or report_bytes = 0");
        }
    }

    ~Implementation() {
        if (!running_) return;
        transport_.cancel();  // before the arena goes
        lanes_->drain();
    }
    Implementation(const Implementation&) = delete;
    Implementation& operator=(const Implementation&) = delete;

    void load(const std::vector<Program>& programs, size_t slot) {
        const Program& program = programs[static_cast<size_t>(communicator_.rank())];
        agree_on_hash(program);
        communicator_.agree([&] {
            if (program.arena_bytes <= arena_.size()) return;
            arena_ = {};  // first give back, then take: never both at once
            arena_ =
                device_.allocate(program.arena_bytes,
                                 "rank " + std::to_string(communicator_.rank()) + ": the arena");
        });
        transport_.prepare(programs);
        if (slot >= loaded_.size()) loaded_.resize(slot + 1);
        loaded_[slot] = std::make_unique<LoadedProgram>(program, device_.asynchronous());
        lanes_->load(program, slot);
        use(slot);
    }

    void run_step(std::span<const Microbatch> microbatches, size_t slot) {
        use(slot);
        try {
            run(microbatches);
        } catch (const DeviceError& error) {
            throw DeviceError("rank " + std::to_string(communicator_.rank()) + ": step " +
                              std::to_string(step_) + ": " + error.what());
        }
    }

    [[nodiscard]] const Timeline& timeline(size_t slot) const { return loaded(slot).timeline; }

    [[nodiscard]] Timeline gather_timeline(size_t slot) {
        const std::vector<int64_t> ahead = clocks_ahead_of_rank_0(communicator_);
        Timeline all;
        const auto mine = std::as_bytes(std::span(timeline(slot).spans));
        for (const std::vector<std::byte>& part : communicator_.all_gather(mine)) {
            const size_t count = part.size() / sizeof(Span);
            const size_t begin = all.spans.size();
            all.spans.resize(begin + count);
            if (count > 0) std::memcpy(all.spans.data() + begin, part.data(), part.size());
        }
        for (Span& span : all.spans) {
            span.begin_ns -= ahead[span.rank];
            span.end_ns -= ahead[span.rank];
        }
        return all;
    }

    [[nodiscard]] uint64_t arena_bytes() const { return arena_.size(); }
    [[nodiscard]] Context& context() { return context_; }
    [[nodiscard]] Transport& transport() { return transport_; }
    void set_step(int64_t step) { step_ = step; }

private:
    [[nodiscard]] LoadedProgram& loaded(size_t slot) const {
        if (slot < loaded_.size() && loaded_[slot]) return *loaded_[slot];
        throw UsageError("executor: no programs were loaded into slot " + std::to_string(slot) +
                         "; load() them first");
    }

    void use(size_t slot) {
        active_ = &loaded(slot);
        slot_ = slot;
    }

    void run(std::span<const Microbatch> microbatches) {
        missing_ = active_->successors.missing;
        users_left_ = active_->users;
        waited_for_.assign(active_->program.actions.size(), UINT32_MAX);
        head_.fill(0);
        in_flight_.clear();
        started_.clear();
        active_->timeline.spans.clear();
        done_ = settled_ = 0;
        enqueues_pass_ = false;
        if (options_.poison_dead_buffers) poison_arena();
        if (modules_.output != nullptr) {
            modules_.output->begin_step(static_cast<int>(microbatches.size()));
        }
        running_ = true;
        lanes_->begin_step(slot_);
        microbatches_ = batch_.load(device_, microbatches);
        IdleWait idle(communicator_.wait_options());
        while (done_ < active_->program.actions.size() || settled_ < started_.size()) {
            if (advance()) {
                idle.reset();
                continue;
            }
            const IdleWait::Verdict verdict = idle.pause();
            if (verdict != IdleWait::Verdict::go_on) give_up(verdict, idle.idle_seconds());
        }
        running_ = false;
        if (device_.asynchronous()) {
            lanes_->read_times(active_->timeline.spans);
            find_what_was_waited_for();
        }
    }

    /// Starts what can start; whether there was anything, or anything ended.
    bool advance() {
        const size_t before = moves();
        tell_where([this] { progress(); });
        const bool ran = can_enqueue() && run_next_pass();
        settle();
        if (ran || moves() != before) return true;
        tell_where([this] { transport_.check_health(); });
        return false;
    }

    /// Grows whenever anything starts or ends.
    [[nodiscard]] size_t moves() const { return done_ + started_.size() + settled_; }

    /// An error of a peer: what has it stopped here?
    template <typename Work>
    void tell_where(Work&& work) {
        try {
            work();
        } catch (const CommunicationError& error) {
            throw CommunicationError(where() + "; " + error.what());
        }
    }

    // --- what is enqueued ------------------------------------------------------------------------

    /// Whether the host may enqueue another part of a pass, on a device with streams: not so far
    /// ahead that it would block in the driver, and not before a transfer is launched that the
    /// transport's own thread is about to launch. While the host enqueues, nobody looks at it.
    [[nodiscard]] bool can_enqueue() {
        if (!device_.asynchronous()) return true;
        const bool launching = !in_flight_.empty() && now_ns() - last_start_ns_ < kLaunchNs;
        return !launching && lanes_->has_room();
    }

    /// Called by passes between parts of their work.
    void poll() {
        if (!device_.asynchronous()) {
            tell_where([this] { progress(); });
            return;
        }
        if (!enqueues_pass_) return;  // a combine_softmax, or operators between steps
        lanes_->end_part();
        IdleWait idle(communicator_.wait_options());
        do {
            const size_t before = moves();
            tell_where([this] { progress(); });
            settle();
            if (moves() != before) {
                idle.reset();
                continue;
            }
            if (can_enqueue()) break;
            tell_where([this] { transport_.check_health(); });
            const IdleWait::Verdict verdict = idle.pause();
            if (verdict != IdleWait::Verdict::go_on) give_up(verdict, idle.idle_seconds());
        } while (true);
        lanes_->begin_part();
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

    /// Where each member's row block begins and ends, in bytes. A root without rows has an empty
    /// block.
    void cut_blocks(const Action& action, Transfer& transfer) {
        const Group& group = active_->program.groups[action.group];
        const Reduction& reduction = active_->program.reductions[action.reduction];
        const int64_t row_bytes =
            reduction.cols *
            size_of(action.what == Do::all_to_all ? reduction.partial : reduction.result);
        const int owners =
            static_cast<int>(reduction.first_row.size()) - (reduction.last_row.empty() ? 1 : 0);
        block_begin_.clear();
        block_end_.clear();
        int owner = 0;
        for (const int rank : group.ranks) {
            const bool owns = std::cmp_equal(group.ranks.size(), owners) || rank != group.root;
            const bool has_block = owns && owner < owners;
            const int64_t end = owner == 0 && !has_block ? 0 : reduction.end(owner - !has_block);
            const int64_t begin = has_block ? reduction.first_row[static_cast<size_t>(owner)] : end;
            block_begin_.push_back(begin * row_bytes);
            block_end_.push_back(end * row_bytes);
            owner += has_block ? 1 : 0;
        }
        transfer.block_begin = block_begin_;
        transfer.block_end = block_end_;
    }

    // --- memory ----------------------------------------------------------------------------------

    [[nodiscard]] Bytes bytes_of(uint32_t buffer) {
        if (buffer == kNoBuffer) return {};
        const Buffer& b = active_->program.buffers[buffer];
        switch (b.space) {
            case Buffer::Space::arena:
                return {arena_.data() + b.offset, b.bytes};
            case Buffer::Space::bucket_gradients:
            case Buffer::Space::bucket_weights:
                return bucket_of(b).subspan(b.offset, b.bytes);
            default:
                break;
        }
        Parameter& p = b.space == Buffer::Space::embedding_gradient
                           ? modules_.input->parameters().front()
                           : modules_.output->parameters().front();
        return {p.gradient.as<std::byte>(), b.bytes};
    }
    [[nodiscard]] Bytes bucket_of(const Buffer& buffer) {
        const RankBucket bucket = modules_.step->bucket(buffer.bucket);
        return buffer.space == Buffer::Space::bucket_gradients ? bucket.gradients : bucket.weights;
    }
    [[nodiscard]] Saved saved(uint32_t kept, uint32_t recomputed) {
        return {.kept = bytes_of(kept), .recomputed = bytes_of(recomputed)};
    }
    [[nodiscard]] Tensor tensor(uint32_t buffer, int64_t rows, int64_t cols, DType dtype) {
        return {bytes_of(buffer).data(), rows, cols, dtype};
    }
    [[nodiscard]] Tensor boundary(uint32_t buffer) {
        return tensor(buffer, sizes_.tokens, sizes_.hidden, sizes_.dtype);
    }

    // --- progress --------------------------------------------------------------------------------

    /// Advances everything but passes. Called while idle, between passes and by passes that poll.
    void progress() {
        if (in_progress_) return;  // a combine_softmax inside polls as well
        in_progress_ = true;
        const struct Leave {
            bool& flag;
            ~Leave() { flag = false; }
        } leave{in_progress_};
        bool again = true;
        while (again) {
            again = false;
            for (size_t i = 0; i < in_flight_.size();) {
                if (!transport_.test(in_flight_[i].ticket)) {
                    ++i;
                    continue;
                }
                const uint32_t action = in_flight_[i].action;
                lanes_->end(active_->program.actions[action].lane, action);
                active_->timeline.spans[in_flight_[i].span].end_ns = now_ns();
                in_flight_.erase(in_flight_.begin() + static_cast<std::ptrdiff_t>(i));
                complete(action);
                again = true;
            }
            for (const Lane lane : {Lane::collective, Lane::forward, Lane::backward}) {
                while (const uint32_t* next = ready_head(lane)) {
                    const uint32_t action = *next;
                    ++head_[static_cast<size_t>(lane)];
                    start_transfer(action);
                    again = true;
                }
            }
            while (const uint32_t* next = ready_head(Lane::local)) {
                const uint32_t action = *next;
                ++head_[static_cast<size_t>(Lane::local)];
                run_local(action);
                again = true;
            }
        }
    }

    [[nodiscard]] const uint32_t* ready_head(Lane lane) const {
        const auto l = static_cast<size_t>(lane);
        if (head_[l] == active_->queues[l].size()) return nullptr;
        // A communication that is not enqueued yet (its peer's memory is not known, its connection
        // not made) keeps its place on the stream.
        if (device_.asynchronous() && lane == Lane::collective && !in_flight_.empty()) {
            return nullptr;
        }
        // Passes have parts to be counted; of the others a lane's stream has room for so many.
        if (device_.asynchronous() && lane != Lane::compute &&
            started_.size() - settled_ >= kMostEnqueued) {
            return nullptr;
        }
        const uint32_t* action = &active_->queues[l][head_[l]];
        return missing_[*action] == 0 ? action : nullptr;
    }

    bool run_next_pass() {
        const uint32_t* next = ready_head(Lane::compute);
        if (next == nullptr) return false;
        const uint32_t action = *next;
        ++head_[static_cast<size_t>(Lane::compute)];
        run_local(action);
        return true;
    }

    size_t open_span(uint32_t action) {
        const Lane lane = active_->program.actions[action].lane;
        if (!active_->waits.empty()) {
            for (const uint32_t before : active_->waits[action]) lanes_->wait(lane, before);
        }
        lanes_->begin(lane, action);
        const int64_t now = now_ns();
        active_->timeline.spans.push_back({action, waited_for_[action],
                                           static_cast<uint16_t>(communicator_.rank()), lane, now,
                                           now, 0});
        started_.push_back(action);
        return active_->timeline.spans.size() - 1;
    }

    /// Counts the actions that have run on the device, in the order they were started.
    void settle() {
        while (settled_ < started_.size() && lanes_->finished(started_[settled_])) ++settled_;
    }

    /// On a device that runs by itself the host saw the order of its own calls only.
    void find_what_was_waited_for() {
        std::vector<int64_t> end(active_->program.actions.size(), 0);
        for (const Span& span : active_->timeline.spans) end[span.action] = span.end_ns;
        waited_for_.assign(active_->program.actions.size(), UINT32_MAX);
        for (const Edge& edge : active_->program.edges) {
            uint32_t& last = waited_for_[edge.after];
            if (last == UINT32_MAX || end[edge.before] > end[last]) last = edge.before;
        }
        for (Span& span : active_->timeline.spans) span.waited_for = waited_for_[span.action];
    }

    void complete(uint32_t action) {
        ++done_;
        for (const uint32_t next : active_->successors.of(action)) {
            waited_for_[next] = action;
            --missing_[next];
        }
        if (options_.poison_dead_buffers && !device_.asynchronous())
            poison_dead(active_->program.operands_of(active_->program.actions[action]));
    }

    /// Before a step nothing in the arena may be of use.
    void poison_arena() {
        const std::vector<std::byte> nan(arena_.size(), std::byte{0xff});
        device_.upload(nan, arena_.data());
    }

    /// A buffer is dead once all its users have completed, on whatever lane.
    void poison_dead(std::span<const uint32_t> operands) {
        for (const uint32_t operand : operands) {
            if (operand == kNoBuffer || --users_left_[operand] > 0) continue;
            if (active_->program.buffers[operand].space != Buffer::Space::arena) continue;
            const Bytes bytes = bytes_of(operand);
            std::memset(bytes.data(), 0xff, bytes.size());  // NaN in every type
        }
    }

    void start_transfer(uint32_t index) {
        const Action& action = active_->program.actions[index];
        const auto operands = active_->program.operands_of(action);
        const Group& group = active_->program.groups[action.group];
        Transfer transfer{.what = action.what,
                          .channel = channel_of(action.lane),
                          .ranks = group.ranks,
                          .root = group.root,
                          .type = active_->program.reductions.empty()
                                      ? DType::fp32
                                      : active_->program.reductions[action.reduction].partial,
                          .send = {},
                          .receive = {},
                          .block_begin = {},
                          .block_end = {}};
        switch (action.what) {
            case Do::send:
                transfer.send = bytes_of(operands[0]);
                break;
            case Do::receive:
                transfer.receive = bytes_of(operands[0]);
                break;
            case Do::broadcast:
                transfer.send = transfer.receive = bytes_of(operands[0]);
                break;
            default:
                transfer.send = bytes_of(operands[0]);
                transfer.receive = bytes_of(operands[1]);
        }
        if (action.what == Do::all_to_all || action.what == Do::gather ||
            action.what == Do::all_gather_v) {
            cut_blocks(action, transfer);
        }
        if (action.what == Do::all_to_all) {
            // Pieces of a bucket lie apart, so its blocks are cut from all of it.
            const Buffer& partial = active_->program.buffers[operands[0]];
            if (partial.space == Buffer::Space::bucket_gradients)
                transfer.send = bucket_of(partial);
        }
        const size_t span = open_span(index);
        in_flight_.push_back({index, span, transport_.start(transfer)});
        last_start_ns_ = now_ns();
    }

    void run_local(uint32_t index) {
        const Action& action = active_->program.actions[index];
        const size_t span = open_span(index);
        const int64_t cpu = thread_cpu_ns();
        const int64_t nested =
            local_cpu_ns_;  // a pass that polls may run a combine_softmax in its midst
        if (action.what == Do::pass) {
            enqueues_pass_ = device_.asynchronous();
            run_pass(active_->program.passes[action.item], action);
            enqueues_pass_ = false;
        } else if (action.what == Do::combine_softmax) {
            run_combine_softmax(action);
        } else {
            run_ordered_sum(action);
        }
        const int64_t own = thread_cpu_ns() - cpu - (local_cpu_ns_ - nested);
        local_cpu_ns_ += own;
        lanes_->end(action.lane, index);
        active_->timeline.spans[span].cpu_ns = own;
        active_->timeline.spans[span].end_ns = now_ns();
        complete(index);
    }

    // --- what actions do -------------------------------------------------------------------------

    void run_pass(const Pass& pass, const Action& action) {
        const auto o = active_->program.operands_of(action);
        StageModule* stage = traits(pass.op).has_stage ? modules_.stages[pass.stage] : nullptr;
        const auto mb = [&]() -> const Microbatch& { return microbatches_[pass.microbatch]; };
        switch (pass.op) {
            case Op::F:
                stage->forward(context_, mb(), boundary(o[0]), boundary(o[1]), saved(o[2], o[3]),
                               bytes_of(o[4]));
                break;
            case Op::R:
                stage->recompute(context_, mb(), boundary(o[0]), saved(o[1], o[2]), bytes_of(o[3]));
                break;
            case Op::B:
                stage->backward(context_, mb(), boundary(o[0]), boundary(o[1]), saved(o[2], o[3]),
                                boundary(o[4]), bytes_of(o[5]), action.overwrites);
                break;
            case Op::I:
                stage->backward_input(context_, mb(), boundary(o[0]), boundary(o[1]),
                                      saved(o[2], o[3]), boundary(o[4]), bytes_of(o[5]),
                                      bytes_of(o[6]));
                break;
            case Op::W:
                stage->backward_weight(context_, mb(), boundary(o[0]), saved(o[1], o[2]),
                                       bytes_of(o[3]), bytes_of(o[4]), action.overwrites);
                break;
            case Op::E:
                modules_.input->embed(context_, mb(), boundary(o[0]));
                break;
            case Op::G:
                modules_.input->gradient(context_, mb(), boundary(o[0]), action.overwrites);
                break;
            case Op::S: {
                const Tensor exp_logits = exp_logits_of(o[1]);
                modules_.output->score(
                    context_, mb(), boundary(o[0]), exp_logits,
                    tensor(o[2], sizes_.tokens, StepSizes::kStatistics, DType::fp32),
                    bytes_of(o[4]));
                if (o[3] != kNoBuffer) {
                    modules_.output->input_product(context_, exp_logits, input_gradient(o[3]));
                }
                break;
            }
            case Op::T: {
                const Tensor exp_logits = exp_logits_of(o[1]);
                const Tensor factors =
                    tensor(o[2], sizes_.tokens, StepSizes::kFactors, DType::fp32);
                if (o[3] != kNoBuffer) {
                    modules_.output->input_product(context_, exp_logits, input_gradient(o[3]));
                    modules_.output->finish_input_gradient(context_, mb(), factors,
                                                           input_gradient(o[3]));
                }
                modules_.output->weight_gradient(context_, mb(), boundary(o[0]), exp_logits,
                                                 factors, bytes_of(o[4]), action.overwrites);
                break;
            }
            case Op::Reduce:
                // Without a step module, gradients only: the two halves stay apart.
                if (modules_.step != nullptr) {
                    modules_.step->reduce_tied(context_, bytes_of(o[0]));
                }
                break;
            case Op::Report:
                modules_.step->report(context_, bytes_of(o[0]));
                break;
            case Op::Update:
                modules_.step->update(context_, bytes_of(o[0]));
                break;
        }
    }

    void run_combine_softmax(const Action& action) {
        const auto o = active_->program.operands_of(action);
        const Microbatch& microbatch = microbatches_[action.item];
        const std::vector<int>& members = active_->program.groups[action.group].ranks;
        const Tensor factors = tensor(o[1], sizes_.tokens, StepSizes::kFactors, DType::fp32);
        modules_.output->combine_softmax(
            context_, microbatch,
            tensor(o[0], static_cast<int64_t>(members.size()) * sizes_.tokens,
                   StepSizes::kStatistics, DType::fp32),
            member_of(members, communicator_.rank()), factors);
        if (o[2] != kNoBuffer) {
            modules_.output->finish_input_gradient(context_, microbatch, factors,
                                                   input_gradient(o[2]));
        }
    }

    void run_ordered_sum(const Action& action) {
        const auto o = active_->program.operands_of(action);
        const Reduction& reduction = active_->program.reductions[action.reduction];
        const std::vector<int>& members = active_->program.groups[action.group].ranks;
        const auto count = static_cast<int64_t>(members.size());
        int64_t rows = reduction.rows(member_of(members, communicator_.rank()));
        if (rows == 0) return;
        int64_t cols = reduction.cols;
        if (cols == 1) {  // elements of a bucket: as rows that are worth a thread, or many
            while (rows % 2 == 0 && cols < kLongestRow) {
                rows /= 2;
                cols *= 2;
            }
        }
        device_.operators().ordered_sum(context_,
                                        tensor(o[0], count * rows, cols, reduction.partial), count,
                                        tensor(o[1], rows, cols, reduction.result));
    }

    [[nodiscard]] Tensor exp_logits_of(uint32_t buffer) {
        const int64_t cols =
            static_cast<int64_t>(bytes_of(buffer).size()) / size_of(sizes_.dtype) / sizes_.tokens;
        return tensor(buffer, sizes_.tokens, cols, sizes_.dtype);
    }
    [[nodiscard]] Tensor input_gradient(uint32_t buffer) {
        return tensor(buffer, sizes_.tokens, sizes_.hidden, DType::fp32);
    }

    // --- errors ----------------------------------------------------------------------------------

    /// Which action this rank is stuck at and which communication, with whom, it waits for.
    [[nodiscard]] std::string where() {
        std::string text = "rank " + std::to_string(communicator_.rank()) + ": step " +
                           std::to_string(step_) + ": ";
        const auto& compute = active_->queues[static_cast<size_t>(Lane::compute)];
        const size_t head = head_[static_cast<size_t>(Lane::compute)] - (enqueues_pass_ ? 1 : 0);
        if (head < compute.size()) {
            text += "waits at " + active_->program.name_of(active_->program.actions[compute[head]]);
        } else if (device_.asynchronous() && in_flight_.empty()) {
            text += "has started all its passes and waits";
        } else {
            text += "has run all its passes and waits";
        }
        std::string open;
        for (const uint32_t index : unfinished_transfers()) {
            const Action& action = active_->program.actions[index];
            if (!open.empty()) open += ", ";
            open += active_->program.name_of(action);
            const auto& ranks = active_->program.groups[action.group].ranks;
            if (action.lane == Lane::collective) {
                open += " (ranks";
                for (const int rank : ranks) {
                    if (rank != communicator_.rank()) open.append(" ").append(std::to_string(rank));
                }
                open += ")";
            }
        }
        if (open.empty() && device_.asynchronous() && settled_ < started_.size()) {
            open = "the device to run " +
                   active_->program.name_of(active_->program.actions[started_[settled_]]);
        }
        return text + " for " + (open.empty() ? std::string("nothing that was started") : open);
    }

    [[noreturn]] void give_up(IdleWait::Verdict verdict, double seconds) {
        std::string text = where();
        char waited[64];
        std::snprintf(waited, sizeof waited, " for %.1f s", seconds);
        text += waited;
        text += verdict == IdleWait::Verdict::interrupted
                    ? "; told to end: the launcher lost another rank or is ending itself"
                    : "; no progress within --distributed-timeout-seconds";
        throw CommunicationError(text);
    }

    /// What this rank waits for: transfers that were started and have not completed. On streams the
    /// first of each lane; the others are behind it.
    [[nodiscard]] std::vector<uint32_t> unfinished_transfers() {
        std::vector<uint32_t> open;
        if (!device_.asynchronous() || !in_flight_.empty()) {
            for (const InFlight& flight : in_flight_) open.push_back(flight.action);
            return open;
        }
        std::array<bool, kLanes> seen{};
        for (size_t i = settled_; i < started_.size(); ++i) {
            const Lane lane = active_->program.actions[started_[i]].lane;
            if (lane == Lane::compute || lane == Lane::local) continue;
            if (seen[static_cast<size_t>(lane)] || lanes_->finished(started_[i])) continue;
            seen[static_cast<size_t>(lane)] = true;
            open.push_back(started_[i]);
        }
        return open;
    }

    static constexpr int64_t kLongestRow = 1024;  // a strip of ordered_sum
    /// NCCL hands a launch of a non-blocking communicator to a thread, which takes tens of
    /// microseconds: guessed, not measured.
    static constexpr int64_t kLaunchNs = 100'000;
    /// Actions of other lanes than compute that have not run: ten entries each at most fit on a
    /// stream, which takes about a thousand.
    static constexpr size_t kMostEnqueued = 64;

    struct InFlight {
        uint32_t action;
        size_t span;
        Ticket ticket;
    };

    Communicator& communicator_;
    Device& device_;
    std::unique_ptr<Lanes> lanes_;
    std::unique_ptr<Transport> device_transport_;  ///< null: the communicator's moves the memory
    Transport& transport_;
    RankModules modules_;
    StepSizes sizes_;
    ExecutorOptions options_;
    DeviceMemory arena_;  ///< of all programs, which run one at a time
    std::vector<std::unique_ptr<LoadedProgram>> loaded_;  ///< [slot]
    LoadedProgram* active_ = nullptr;                     ///< of the running or the last step
    size_t slot_ = 0;                                     ///< of active_

    // Of the running step.
    DeviceBatch batch_;
    std::span<const Microbatch> microbatches_;
    std::vector<uint32_t> missing_, waited_for_, users_left_;
    std::array<size_t, kLanes> head_{};
    std::vector<InFlight> in_flight_;
    std::vector<int64_t> block_begin_, block_end_;  ///< of the transfer that is started
    std::vector<uint32_t> started_;                 ///< actions, in the order of their starts
    size_t done_ = 0;                               ///< actions whose successors may start
    size_t settled_ = 0;                            ///< of started_: have run
    bool running_ = false;
    bool enqueues_pass_ = false;  ///< a pass is between its begin and its end
    int64_t last_start_ns_ = 0;   ///< of a transfer
    int64_t local_cpu_ns_ = 0;    ///< of all passes, local actions so far
    bool in_progress_ = false;
    int64_t step_ = 0;
    Context context_;
};

Executor::Executor(Communicator& communicator, Device& device, const RankModules& modules,
                   const StepSizes& sizes, ExecutorOptions options)
    : implementation_(
          std::make_unique<Implementation>(communicator, device, modules, sizes, options)) {}
Executor::~Executor() = default;
void Executor::load(const std::vector<Program>& programs, size_t slot) {
    implementation_->load(programs, slot);
}
void Executor::run_step(std::span<const Microbatch> microbatches, size_t slot) {
    implementation_->run_step(microbatches, slot);
}
const Timeline& Executor::timeline(size_t slot) const {
    return implementation_->timeline(slot);
}
Timeline Executor::gather_timeline(size_t slot) {
    return implementation_->gather_timeline(slot);
}
uint64_t Executor::arena_bytes() const {
    return implementation_->arena_bytes();
}
Context& Executor::context() {
    return implementation_->context();
}
Transport& Executor::transport() {
    return implementation_->transport();
}
void Executor::set_step(int64_t step) {
    implementation_->set_step(step);
}

}  // namespace vocabpipe

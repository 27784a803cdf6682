// SPDX-License-Identifier: Apache-2.0
#include "src/train/verify/step_replay.hpp"

#include "src/runtime/executor_internals.hpp"
#include "src/runtime/gathered.hpp"
#include "src/runtime/step_memory.hpp"
#include "src/schedule/ops.hpp"
#include "src/support/crc32c.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/mesh.hpp"
#include "vocabpipe/program.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

namespace vocabpipe {

namespace {

/// Its padded columns hold what an earlier use of the memory left.
uint32_t padded_buffer(const Program& program, const Action& action) {
    if (action.what != Do::pass) return kNoBuffer;
    const Op op = program.passes[action.item].op;
    if (op == Op::S) return operands_of<Op::S>(program, action).exp_logits;
    if (op == Op::T) return operands_of<Op::T>(program, action).exp_logits;
    return kNoBuffer;
}

/// Whether the buffer is written as a whole, unlike workspaces and activations.
bool is_written_whole(const Buffer& buffer) {
    return buffer.space == Buffer::Space::arena &&
           (buffer.purpose == Purpose::boundary || buffer.purpose == Purpose::vocabulary ||
            buffer.purpose == Purpose::partial_sums);
}

uint32_t checksum(const Program& program, const Action& action, const StepMemory& memory) {
    uint32_t sum = 0;
    const uint32_t padded = padded_buffer(program, action);
    for (const uint32_t buffer : program.operands_of(action)) {
        if (buffer == kNoBuffer || buffer == padded) continue;
        if (is_written_whole(program.buffers[buffer])) sum = crc32c(memory.bytes(buffer), sum);
    }
    return sum;
}

/// Where two runs of a rank first differ. In messages between ranks.
struct Difference {
    uint32_t order = UINT32_MAX;  ///< in the global order; a gradient comes after all actions
    uint32_t index = UINT32_MAX;  ///< of the action or, after them, of the parameter; else none
};

/// What a rank sent or received in a message. In messages between ranks.
struct Message {
    uint32_t order = 0;
    uint32_t checksum = 0;
    uint32_t action = 0;
    uint32_t is_broadcast = 0;
};

/// The first message that did not arrive as it was sent: the rank that has it, and its action
/// there.
std::optional<std::pair<int, uint32_t>> first_damaged(
    const std::vector<std::vector<Message>>& by_rank, const Mesh& mesh) {
    // Slices run copies of the same programs, so the same order is several messages; a broadcast
    // reaches all tensor ranks of a replica.
    std::map<std::tuple<uint32_t, int, int>, uint32_t> sent;
    std::optional<std::pair<int, uint32_t>> first;
    uint32_t first_order = UINT32_MAX;
    for (int rank = 0; std::cmp_less(rank, by_rank.size()); ++rank) {
        const Mesh::Place place = mesh.place(rank);
        for (const Message& message : by_rank[static_cast<size_t>(rank)]) {
            const std::tuple key(message.order, place.data * mesh.context + place.context,
                                 message.is_broadcast != 0 ? -1 : place.tensor);
            const auto [found, added] = sent.emplace(key, message.checksum);
            if (added || found->second == message.checksum || message.order >= first_order) {
                continue;
            }
            first = {rank, message.action};
            first_order = message.order;
        }
    }
    return first;
}

[[noreturn]] void refuse(int64_t step, const std::string& what) {
    throw AgreedError(ExitCode::wrong_values,
                      "--replay-steps: step " + std::to_string(step) + ": " + what +
                          "; a processor, memory or link is faulty: go on from the last saved step "
                          "without that host");
}

}  // namespace

StepReplay::Trace StepReplay::trace(std::span<const Microbatch> microbatches) {
    Trace trace;
    Executor& executor = rank_.executor();
    const bool sees_actions = !rank_.device().asynchronous();
    if (sees_actions) {
        ExecutorInternals::observe(
            executor, [&](const Program& program, const Action& action, const StepMemory& memory) {
                trace.actions.resize(program.actions.size());
                trace.actions[static_cast<size_t>(&action - program.actions.data())] =
                    checksum(program, action, memory);
            });
    }
    rank_.run(microbatches, plan_);
    ExecutorInternals::observe(executor, {});
    std::vector<std::byte> bytes;
    for (const Parameter& parameter : rank_.parameters()) {
        const Tensor gradient = parameter.lasting_gradient();
        bytes.resize(static_cast<size_t>(gradient.bytes()));
        if (!bytes.empty()) rank_.device().download(gradient.as<std::byte>(), bytes);
        trace.gradients.push_back(crc32c(bytes));
    }
    return trace;
}

void StepReplay::run(std::span<const Microbatch> microbatches, int64_t step) {
    rank_.executor().set_step(step);
    const Trace first = trace(microbatches);
    const Trace second = trace(microbatches);
    Communicator& communicator = rank_.communicator();
    const Program& program = rank_.executor().program(rank_.program());

    Difference mine;
    for (size_t i = 0; i < first.actions.size(); ++i) {
        if (first.actions[i] == second.actions[i]) continue;
        mine = {program.actions[i].order, static_cast<uint32_t>(i)};
        break;  // actions are in the global order
    }
    if (mine.order == UINT32_MAX) {
        const auto [a, b] = std::ranges::mismatch(first.gradients, second.gradients);
        (void)b;
        if (a != first.gradients.end()) {
            mine.index = static_cast<uint32_t>(a - first.gradients.begin());
        }
    }
    std::vector<Message> messages;
    for (size_t i = 0; i < first.actions.size(); ++i) {
        const Action& action = program.actions[i];
        if (action.what != Do::send && action.what != Do::receive && action.what != Do::broadcast) {
            continue;
        }
        messages.push_back({action.order, first.actions[i], static_cast<uint32_t>(i),
                            action.what == Do::broadcast ? 1U : 0U});
    }

    // Every rank learns the same, and throws the same.
    const std::vector<Difference> differences = gathered_values(communicator, mine);
    const auto earliest = std::ranges::min_element(differences, {}, [](const Difference& of_rank) {
        return std::pair(of_rank.order, of_rank.index);
    });
    const auto rank = static_cast<int>(earliest - differences.begin());
    const Difference& found = *earliest;
    const auto name_there = [&](int of, const std::string& name) {
        return gathered_texts(communicator, name)[static_cast<size_t>(of)];
    };
    if (found.index != UINT32_MAX) {
        const bool of_gradient = found.order == UINT32_MAX;
        std::string name;
        if (rank == communicator.rank()) {
            name = of_gradient ? "the gradient of " + rank_.parameters()[found.index].name
                               : program.name_of(program.actions[found.index]);
        }
        refuse(step, name_there(rank, name) + " on rank " + std::to_string(rank) +
                         " has other bits when it is computed again");
    }
    const auto damaged = first_damaged(
        gathered_lists(communicator, std::span<const Message>(messages)), rank_.model().mesh());
    if (!damaged) return;
    const auto [of, action] = *damaged;
    refuse(step, name_there(of, of == communicator.rank() ? program.name_of(program.actions[action])
                                                          : std::string()) +
                     " on rank " + std::to_string(of) + " has other bits than another rank of it");
}

}  // namespace vocabpipe

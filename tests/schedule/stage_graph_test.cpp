// SPDX-License-Identifier: Apache-2.0
// Stages that give each other tensors as any graph says: what lowering makes of random graphs,
// against rules written down here, and runs of them on threads whose modules know every number that
// they must find.
//
// VOCABPIPE_PROPERTY_CASES: graphs per property.
#include "tests/schedule/program_tools.hpp"
#include "tests/schedule/rendezvous.hpp"
#include "tests/support/number_of_cases.hpp"
#include "tests/support/random_schedule.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/executor.hpp"
#include "vocabpipe/simulate.hpp"
#include "vocabpipe/with_recomputation.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

namespace vocabpipe::testing {
namespace {

using ::testing::ThrowsMessage;

// --- random graphs -------------------------------------------------------------------------------

/// A schedule with what its stages give each other.
struct StageGraphCase {
    Schedule schedule;
    StepSizes sizes;
    std::string description;
};

/// Tensors of all stages, each with random later readers; sizes are whole numbers of 8 bytes.
std::vector<StageTensor> random_tensors(int stages, std::mt19937& random) {
    std::vector<StageTensor> tensors;
    const auto density = 1 + random() % 4;
    for (int maker = 0; maker + 1 < stages; ++maker) {
        for (auto i = random() % 4; i > 0; --i) {
            StageTensor tensor{.maker = maker,
                               .readers = {},
                               .bytes = 8 * static_cast<int64_t>(1 + random() % 40)};
            for (int reader = maker + 1; reader < stages; ++reader) {
                if (random() % density == 0) tensor.readers.push_back(reader);
            }
            if (!tensor.readers.empty()) tensors.push_back(std::move(tensor));
        }
    }
    std::ranges::shuffle(tensors, random);  // any order is allowed
    return tensors;
}

std::string list(const std::vector<StageTensor>& tensors) {
    std::string text;
    for (const StageTensor& tensor : tensors) {
        text += "\n" + std::to_string(tensor.maker) + " gives " + std::to_string(tensor.bytes) +
                " bytes to";
        for (const int reader : tensor.readers) text += " " + std::to_string(reader);
    }
    return text;
}

/// Sizes for a graph: what a stage keeps, whole numbers of 8 bytes and sometimes nothing.
StepSizes graph_sizes(const Schedule& schedule, std::mt19937& random) {
    StepSizes sizes = sizes_for(schedule, 8, 4);
    const auto bytes = [&] {
        return 8 * static_cast<int64_t>(random() % 3 == 0 ? 0 : random() % 30);
    };
    for (StageBytes& stage : sizes.stages) {
        stage = {bytes(), bytes(), bytes(), bytes(), bytes(), bytes(), bytes()};
    }
    sizes.stage_tensors = random_tensors(schedule.stages, random);
    return sizes;
}

/// A schedule of a family in a mode, with or without vocabulary layers and recomputation; or one
/// that nobody designed.
Schedule random_graph_schedule(std::mt19937& random, int most_ranks) {
    if (random() % 4 == 0) {
        return random_schedule(random, {.most_ranks = most_ranks, .most_stages = 7});
    }
    const std::vector<Kind> kinds = every_kind(true);
    const Kind& kind = kinds[random() % kinds.size()];
    ScheduleOptions options{
        .ranks = static_cast<int>(1 + random() % static_cast<uint32_t>(most_ranks)),
        .microbatches = static_cast<int>(1 + random() % 6),
        .vocab_mode = kind.mode,
        .vocab_size = 13,
        .forward_only = kind.forward_only};
    if (random() % 2 == 0) {
        options.vocab_mode = VocabMode::none;
        options.input_layer = random() % 2 == 0;
        options.output_layer = random() % 2 == 0;
    }
    Schedule schedule = make_schedule(kind.family, options);
    return random() % 3 == 0 ? with_recomputation(std::move(schedule)) : schedule;
}

StageGraphCase random_case(uint32_t seed, int most_ranks) {
    std::mt19937 random(seed);
    StageGraphCase made{.schedule = random_graph_schedule(random, most_ranks)};
    made.sizes = graph_sizes(made.schedule, random);
    made.description = "seed " + std::to_string(seed) + "\n" + describe(made.schedule) +
                       list(*made.sizes.stage_tensors);
    return made;
}

/// Which tensors a stage reads and makes, and which of those it reads later stages read, too.
struct StageEnds {
    std::vector<size_t> read, made, read_later;
};

std::vector<StageEnds> ends_of_stages(const std::vector<StageTensor>& tensors, int stages) {
    std::vector<StageEnds> ends(static_cast<size_t>(stages));
    for (size_t t = 0; t < tensors.size(); ++t) {
        ends[static_cast<size_t>(tensors[t].maker)].made.push_back(t);
        for (const int reader : tensors[t].readers) {
            StageEnds& of = ends[static_cast<size_t>(reader)];
            of.read.push_back(t);
            if (reader != tensors[t].readers.back()) of.read_later.push_back(t);
        }
    }
    return ends;
}

// --- what lowering makes -------------------------------------------------------------------------

/// What a tensor operand of a pass is.
enum class Role : uint8_t { value, made_value, gradient, made_gradient };

/// A tensor operand of a pass.
struct TensorOperand {
    Role role;
    size_t tensor;
    uint32_t buffer;
};

/// The operands of F, R, B, I and W that are tensors of the graph, in the order of
/// Activations::tensors.
std::vector<TensorOperand> tensor_operands(const Program& program, const Action& action,
                                           const StageEnds& ends) {
    const Pass& pass = pass_of(program, action);
    const std::map<Op, size_t> others{{Op::F, 6}, {Op::R, 4}, {Op::B, 7}, {Op::I, 8}, {Op::W, 5}};
    std::vector<TensorOperand> operands;
    size_t next = others.at(pass.op);
    const auto of_action = program.operands_of(action);
    const auto take = [&](const std::vector<size_t>& tensors, Role role) {
        for (const size_t t : tensors) {
            if (next >= of_action.size()) {
                ADD_FAILURE() << to_string(pass) << " has too few operands";
                return;
            }
            operands.push_back({role, t, of_action[next++]});
        }
    };
    take(ends.read, Role::value);
    if (pass.op == Op::F) take(ends.made, Role::made_value);
    if (pass.op == Op::B || pass.op == Op::I) {
        take(ends.made, Role::gradient);
        take(ends.read_later, Role::gradient);
        take(ends.read, Role::made_gradient);
    }
    EXPECT_TRUE(operands.empty() || next == of_action.size()) << to_string(pass);
    return operands;
}

/// A message, as what it brings: rank to rank, and the bytes; "1F0 makes 4" and "3F0 reads 4".
using GraphMessage = std::tuple<std::string, std::string, int, int, uint64_t>;

/// Follows tensors through programs.
class TensorTracer {
public:
    TensorTracer(const StageGraphCase& tested, const std::vector<Program>& programs)
        : case_(tested),
          programs_(programs),
          ends_(ends_of_stages(*tested.sizes.stage_tensors, tested.schedule.stages)) {
        for (const Program& program : programs_) find_makers(program);
    }

    /// Every tensor operand comes from where it must.
    void expect_origins() const {
        for (const Program& program : programs_) {
            for (const Action& action : program.actions) {
                if (action.what != Do::pass || !traits(pass_of(program, action).op).has_stage) {
                    continue;
                }
                expect_origins(program, action);
            }
        }
    }

    /// All messages of the forward and the backward lane.
    [[nodiscard]] std::multiset<GraphMessage> messages() const {
        std::multiset<GraphMessage> all;
        for (const Program& program : programs_) {
            const auto users = users_of_buffers(program);
            for (const Action& action : program.actions) {
                if (action.what != Do::receive) continue;
                const uint32_t buffer = program.operands_of(action)[0];
                const int from = program.groups[action.group].ranks[0];
                const Action& user = program.actions[users[buffer].at(1)];
                std::string used = "nothing reads";
                for (const TensorOperand& operand :
                     tensor_operands(program, user, ends_of(pass_of(program, user).stage))) {
                    if (operand.buffer != buffer) continue;
                    used = name(pass_of(program, user), operand.tensor);
                }
                all.insert({origin(program, buffer), used, from, program.rank,
                            program.buffers[buffer].bytes});
            }
        }
        return all;
    }

    /// What the rules want.
    [[nodiscard]] std::multiset<GraphMessage> expected_messages() const {
        std::multiset<GraphMessage> all;
        const std::vector<StageTensor>& tensors = *case_.sizes.stage_tensors;
        for (uint32_t j = 0; j < static_cast<uint32_t>(case_.schedule.microbatches); ++j) {
            for (size_t t = 0; t < tensors.size(); ++t) {
                add_forward(tensors[t], t, j, all);
                if (!case_.schedule.forward_only()) add_backward(tensors[t], t, j, all);
            }
        }
        return all;
    }

private:
    [[nodiscard]] const StageEnds& ends_of(int stage) const {
        return ends_[static_cast<size_t>(stage)];
    }
    [[nodiscard]] int rank_of(int stage) const {
        return case_.schedule.rank_of_stage[static_cast<size_t>(stage)];
    }
    /// I counts as B: either hands gradients on.
    [[nodiscard]] static std::string name(Pass pass, size_t tensor) {
        if (pass.op == Op::I) pass.op = Op::B;
        pass.with_next = false;
        return to_string(pass) + " " + std::to_string(tensor);
    }

    void find_makers(const Program& program) {
        for (uint32_t i = 0; i < program.actions.size(); ++i) {
            const Action& action = program.actions[i];
            if (action.what == Do::send) sent_[action.order] = program.operands_of(action)[0];
            if (action.what == Do::receive) {
                received_[{program.rank, program.operands_of(action)[0]}] = action.order;
            }
            if (action.what != Do::pass || !traits(pass_of(program, action).op).has_stage) continue;
            const Pass& pass = pass_of(program, action);
            for (const TensorOperand& operand :
                 tensor_operands(program, action, ends_of(pass.stage))) {
                if (operand.role != Role::made_value && operand.role != Role::made_gradient) {
                    continue;
                }
                EXPECT_EQ(program.buffers[operand.buffer].born, i) << to_string(pass);
                EXPECT_TRUE(makers_
                                .emplace(std::pair(program.rank, operand.buffer),
                                         name(pass, operand.tensor))
                                .second);
            }
        }
    }

    /// Who has made what a buffer holds, here or on the rank that has sent it.
    [[nodiscard]] std::string origin(const Program& program, uint32_t buffer) const {
        const auto received = received_.find({program.rank, buffer});
        if (received == received_.end()) {
            const auto made = makers_.find({program.rank, buffer});
            return made == makers_.end() ? "nobody" : made->second;
        }
        const Action& receive = program.actions[program.buffers[buffer].born];
        const int from = program.groups[receive.group].ranks[0];
        const auto made = makers_.find({from, sent_.at(received->second)});
        return made == makers_.end() ? "nobody" : made->second;
    }

    void expect_origins(const Program& program, const Action& action) const {
        const Pass& pass = pass_of(program, action);
        for (const TensorOperand& operand : tensor_operands(program, action, ends_of(pass.stage))) {
            const StageTensor& tensor = (*case_.sizes.stage_tensors)[operand.tensor];
            ASSERT_NE(operand.buffer, kNoBuffer);
            EXPECT_EQ(program.buffers[operand.buffer].bytes, static_cast<uint64_t>(tensor.bytes));
            Pass made{.op = Op::F,
                      .stage = static_cast<uint16_t>(tensor.maker),
                      .microbatch = pass.microbatch};
            if (operand.role == Role::gradient) {
                made.op = Op::B;
                made.stage = static_cast<uint16_t>(
                    *std::ranges::upper_bound(tensor.readers, static_cast<int>(pass.stage)));
            }
            if (operand.role == Role::made_gradient) made = pass;
            EXPECT_EQ(origin(program, operand.buffer), name(made, operand.tensor))
                << to_string(pass);
        }
    }

    void add_forward(const StageTensor& tensor, size_t t, uint32_t j,
                     std::multiset<GraphMessage>& all) const {
        std::set<int> have{rank_of(tensor.maker)};
        for (const int reader : tensor.readers) {
            if (!have.insert(rank_of(reader)).second) continue;
            all.insert(message(Op::F, tensor.maker, reader, t, j));
        }
    }
    void add_backward(const StageTensor& tensor, size_t t, uint32_t j,
                      std::multiset<GraphMessage>& all) const {
        for (size_t i = tensor.readers.size(); i-- > 0;) {
            const int to = i == 0 ? tensor.maker : tensor.readers[i - 1];
            if (rank_of(tensor.readers[i]) == rank_of(to)) continue;
            all.insert(message(Op::B, tensor.readers[i], to, t, j));
        }
    }
    [[nodiscard]] GraphMessage message(Op op, int from, int to, size_t t, uint32_t j) const {
        const Pass one{.op = op, .stage = static_cast<uint16_t>(from), .microbatch = j};
        const Pass other{.op = op, .stage = static_cast<uint16_t>(to), .microbatch = j};
        return {name(one, t), name(other, t), rank_of(from), rank_of(to),
                static_cast<uint64_t>((*case_.sizes.stage_tensors)[t].bytes)};
    }

    const StageGraphCase& case_;
    const std::vector<Program>& programs_;
    std::vector<StageEnds> ends_;
    std::map<std::pair<int, uint32_t>, std::string> makers_;  ///< by rank and buffer
    std::map<std::pair<int, uint32_t>, uint32_t> received_;   ///< the same: order of the message
    std::map<uint32_t, uint32_t> sent_;                       ///< by order: the sender's buffer
};

/// All users of a buffer come after the action that writes it first; buffers that share a byte of
/// the arena are not in use at the same time, whatever the timing.
void expect_memory_is_sound(const Program& program) {
    const HappensBefore before(program);
    const auto users = users_of_buffers(program);
    const auto over_before = [&](size_t one, size_t other) {
        return std::ranges::all_of(users[one], [&](uint32_t a) {
            return std::ranges::all_of(users[other],
                                       [&](uint32_t b) { return before.ordered(a, b); });
        });
    };
    constexpr uint64_t kAlignment = 256;
    uint64_t all = 0;
    for (size_t one = 0; one < users.size(); ++one) {
        const Buffer& a = program.buffers[one];
        ASSERT_FALSE(users[one].empty()) << "buffer " << one;
        for (const uint32_t user : users[one]) {
            ASSERT_TRUE(user == a.born || before.ordered(a.born, user)) << "buffer " << one;
        }
        if (a.space != Buffer::Space::arena) continue;
        all += (a.bytes + kAlignment - 1) / kAlignment * kAlignment;
        ASSERT_LE(a.offset + a.bytes, program.arena_bytes);
        for (size_t other = 0; other < one; ++other) {
            const Buffer& b = program.buffers[other];
            if (b.space != Buffer::Space::arena || a.offset >= b.offset + b.bytes ||
                b.offset >= a.offset + a.bytes) {
                continue;
            }
            ASSERT_TRUE(over_before(one, other) || over_before(other, one))
                << "buffers " << other << " and " << one;
        }
    }
    ASSERT_LE(program.live_peak_bytes, program.arena_bytes);
    ASSERT_LE(program.live_peak_bytes, all);
}

TEST(StageGraph, IsLoweredAsTheRulesSay) {
    for (int i = 0; i < number_of_cases(1000); ++i) {
        const StageGraphCase tested = random_case(static_cast<uint32_t>(i), 5);
        SCOPED_TRACE(tested.description);
        const TableCosts costs = uneven_costs(tested.schedule);
        const std::vector<Program> programs =
            lower(tested.schedule, tested.sizes, costs, {.receive_ahead = i % 3});
        ASSERT_EQ(find_deadlock(programs).value_or(""), "");
        ASSERT_EQ(rendezvous_fault(programs), "");
        const TensorTracer tracer(tested, programs);
        ASSERT_NO_FATAL_FAILURE(tracer.expect_origins());
        ASSERT_EQ(tracer.messages(), tracer.expected_messages());
        size_t actions = 0;
        for (const Program& program : programs) {
            ASSERT_NO_FATAL_FAILURE(expect_memory_is_sound(program));
            actions += program.actions.size();
        }
        ASSERT_EQ(simulate(programs, costs).timeline.spans.size(), actions);
        ASSERT_FALSE(HasFailure());
    }
}

// --- runs ----------------------------------------------------------------------------------------

/// A number that every place has of its own.
uint64_t mixed(std::initializer_list<uint64_t> place) {
    uint64_t x = 0x9E3779B97F4A7C15U;
    for (const uint64_t part : place) {
        x ^= part + 0x9E3779B97F4A7C15U + (x << 6) + (x >> 2);
        x *= 0xBF58476D1CE4E5B9U;
        x ^= x >> 31;
    }
    return x;
}

using Numbers = std::vector<uint64_t>;

/// Every number of a step: a tensor is something of its own plus all that its maker reads; its
/// gradient at a reader is something of its own plus the gradients of all that the reader makes,
/// and what later readers have handed on.
class ExpectedNumbers {
public:
    ExpectedNumbers(const std::vector<StageTensor>& tensors, int stages)
        : tensors_(tensors), ends_(ends_of_stages(tensors, stages)) {}

    [[nodiscard]] const StageEnds& ends(int stage) const {
        return ends_[static_cast<size_t>(stage)];
    }
    [[nodiscard]] size_t count(size_t t) const {
        return static_cast<size_t>(tensors_[t].bytes) / 8;
    }

    /// Numbers of tensor t, made from those of its maker's inputs.
    [[nodiscard]] Numbers make(size_t t, uint64_t j, const std::vector<Numbers>& inputs) const {
        Numbers made(count(t));
        for (size_t i = 0; i < made.size(); ++i) {
            made[i] = mixed({1, t, j, i}) + sum_at(inputs, i);
        }
        return made;
    }
    [[nodiscard]] Numbers value(size_t t, uint64_t j) {
        Numbers& known = values_[{t, j}];
        if (known.empty()) known = make(t, j, inputs(tensors_[t].maker, j));
        return known;
    }
    [[nodiscard]] std::vector<Numbers> inputs(int stage, uint64_t j) {
        std::vector<Numbers> read;
        for (const size_t t : ends(stage).read) read.push_back(value(t, j));
        return read;
    }

    /// The gradient of tensor t that `reader` hands on; `later`: that of the next reader, or empty.
    [[nodiscard]] Numbers hand_on(size_t t, int reader, uint64_t j,
                                  const std::vector<Numbers>& of_outputs,
                                  const Numbers& later) const {
        Numbers made(count(t));
        for (size_t i = 0; i < made.size(); ++i) {
            made[i] = mixed({2, t, static_cast<uint64_t>(reader), j, i}) + sum_at(of_outputs, i) +
                      (later.empty() ? 0 : later[i]);
        }
        return made;
    }
    [[nodiscard]] Numbers gradient(size_t t, int reader, uint64_t j) {
        const Numbers known = gradients_[{t, reader, j}];
        if (!known.empty()) return known;
        std::vector<Numbers> of_outputs;
        for (const size_t made : ends(reader).made) of_outputs.push_back(of_output(made, j));
        Numbers made = hand_on(t, reader, j, of_outputs, of_later(t, reader, j));
        gradients_[{t, reader, j}] = made;
        return made;
    }
    /// What the maker of tensor t gets.
    [[nodiscard]] Numbers of_output(size_t t, uint64_t j) {
        return gradient(t, tensors_[t].readers.front(), j);
    }
    /// What `reader` gets of later ones; empty: it is the last.
    [[nodiscard]] Numbers of_later(size_t t, int reader, uint64_t j) {
        const auto next = std::ranges::upper_bound(tensors_[t].readers, reader);
        return next == tensors_[t].readers.end() ? Numbers() : gradient(t, *next, j);
    }

private:
    [[nodiscard]] static uint64_t sum_at(const std::vector<Numbers>& all, size_t i) {
        uint64_t sum = 0;
        for (size_t k = 0; k < all.size(); ++k) sum += (2 * k + 3) * all[k][i % all[k].size()];
        return sum;
    }

    const std::vector<StageTensor>& tensors_;
    std::vector<StageEnds> ends_;
    std::map<std::pair<size_t, uint64_t>, Numbers> values_;
    std::map<std::tuple<size_t, int, uint64_t>, Numbers> gradients_;
};

Numbers numbers_in(Bytes memory) {
    const auto* const first = reinterpret_cast<const uint64_t*>(memory.data());
    return {first, first + memory.size() / 8};
}

void write_numbers(const Numbers& numbers, Bytes memory) {
    ASSERT_EQ(numbers.size() * 8, memory.size());
    std::ranges::copy(numbers, reinterpret_cast<uint64_t*>(memory.data()));
}

/// Fills memory with numbers of a place; workspaces with anything.
void fill(Bytes memory, std::initializer_list<uint64_t> place) {
    auto* const first = reinterpret_cast<uint64_t*>(memory.data());
    for (size_t i = 0; i < memory.size() / 8; ++i) first[i] = mixed(place) + i;
}

bool holds(Bytes memory, std::initializer_list<uint64_t> place) {
    const Numbers numbers = numbers_in(memory);
    for (size_t i = 0; i < numbers.size(); ++i) {
        if (numbers[i] != mixed(place) + i) return false;
    }
    return true;
}

/// Checks all that its passes get, takes its time, and makes what it must.
class CountingStage final : public StageModule {
public:
    CountingStage(const StageGraphCase& tested, int stage, uint32_t seed)
        : stage_(stage),
          bytes_(tested.sizes.stages[static_cast<size_t>(stage)]),
          has_x_(stage == 0 && !tested.schedule.input.owners().empty()),
          has_y_(stage + 1 == tested.schedule.stages && !tested.schedule.output.owners().empty()),
          expected_(*tested.sizes.stage_tensors, tested.schedule.stages),
          random_(seed * 31U + static_cast<uint32_t>(stage)) {}

    [[nodiscard]] StageBytes bytes() const override { return bytes_; }
    [[nodiscard]] std::span<Parameter> parameters() override { return {}; }
    [[nodiscard]] int passes() const { return passes_; }

    void begin_step(int /*microbatches*/) override { has_gradient_ = false; }

    void forward(Context& ctx, const Microbatch& microbatch, ConstTensor x, Tensor y,
                 Activations activations, Bytes workspace) override {
        begin(ctx, microbatch);
        EXPECT_EQ(static_cast<bool>(x), has_x_);
        EXPECT_EQ(static_cast<bool>(y), has_y_);
        const std::vector<Numbers> inputs = take_inputs(activations, "F");
        for (const size_t t : expected_.ends(stage_).made) {
            write_numbers(expected_.make(t, j_, inputs), next(activations));
        }
        expect_end(activations);
        fill(activations.saved, {3, at(), j_});
        fill(activations.recomputed, {4, at(), j_});
        fill(workspace, {5, random_()});
    }

    void recompute(Context& ctx, const Microbatch& microbatch, ConstTensor x,
                   Activations activations, Bytes workspace) override {
        begin(ctx, microbatch);
        EXPECT_EQ(static_cast<bool>(x), has_x_);
        static_cast<void>(take_inputs(activations, "R"));
        expect_end(activations);
        EXPECT_TRUE(holds(activations.saved, {3, at(), j_}));
        fill(activations.recomputed, {4, at(), j_});
        fill(workspace, {5, random_()});
    }

    void backward(Context& ctx, const Microbatch& microbatch, ConstTensor dy, ConstTensor x,
                  Activations activations, Tensor dx, Bytes workspace, bool accumulate) override {
        make_gradients(ctx, microbatch, dy, x, activations, dx);
        fill(workspace, {5, random_()});
        expect_first(accumulate);
    }

    void backward_input(Context& ctx, const Microbatch& microbatch, ConstTensor dy, ConstTensor x,
                        Activations activations, Tensor dx, Bytes for_weight,
                        Bytes workspace) override {
        make_gradients(ctx, microbatch, dy, x, activations, dx);
        fill(for_weight, {6, at(), j_});
        fill(workspace, {5, random_()});
    }

    void backward_weight(Context& ctx, const Microbatch& microbatch, ConstTensor x,
                         Activations activations, Bytes for_weight, Bytes workspace,
                         bool accumulate) override {
        begin(ctx, microbatch);
        EXPECT_EQ(static_cast<bool>(x), has_x_);
        static_cast<void>(take_inputs(activations, "W"));
        expect_end(activations);
        expect_saved(activations);
        EXPECT_TRUE(holds(for_weight, {6, at(), j_}));
        fill(workspace, {5, random_()});
        expect_first(accumulate);
    }

private:
    [[nodiscard]] uint64_t at() const { return static_cast<uint64_t>(stage_); }

    void begin(Context& ctx, const Microbatch& microbatch) {
        j_ = static_cast<uint64_t>(microbatch.index);
        next_ = 0;
        ++passes_;
        for (auto i = random_() % 3; i > 0; --i) {
            ctx.poll();
            std::this_thread::sleep_for(std::chrono::microseconds(random_() % 100));
        }
    }
    [[nodiscard]] Bytes next(const Activations& activations) {
        EXPECT_LT(next_, activations.tensors.size());
        return next_ < activations.tensors.size() ? activations.tensors[next_++] : Bytes();
    }
    void expect_end(const Activations& activations) const {
        EXPECT_EQ(next_, activations.tensors.size());
    }
    [[nodiscard]] std::vector<Numbers> take_inputs(const Activations& activations,
                                                   const std::string& pass) {
        std::vector<Numbers> inputs;
        for (const size_t t : expected_.ends(stage_).read) {
            inputs.push_back(numbers_in(next(activations)));
            EXPECT_EQ(inputs.back(), expected_.value(t, j_))
                << pass << " of stage " << stage_ << ", microbatch " << j_ << ", tensor " << t;
        }
        return inputs;
    }
    void expect_saved(const Activations& activations) const {
        EXPECT_TRUE(holds(activations.saved, {3, at(), j_}));
        EXPECT_TRUE(holds(activations.recomputed, {4, at(), j_}));
    }
    /// `accumulate` is false in the first pass of a step that writes the weights' gradients, and
    /// true in every other.
    void expect_first(bool accumulate) {
        EXPECT_EQ(accumulate, has_gradient_);
        has_gradient_ = true;
    }
    void make_gradients(Context& ctx, const Microbatch& microbatch, ConstTensor dy, ConstTensor x,
                        const Activations& activations, Tensor dx) {
        begin(ctx, microbatch);
        EXPECT_EQ(static_cast<bool>(x), has_x_);
        EXPECT_EQ(static_cast<bool>(dx), has_x_);
        EXPECT_EQ(static_cast<bool>(dy), has_y_);
        static_cast<void>(take_inputs(activations, "B"));
        const StageEnds& ends = expected_.ends(stage_);
        std::vector<Numbers> of_outputs;
        for (const size_t t : ends.made) {
            of_outputs.push_back(numbers_in(next(activations)));
            EXPECT_EQ(of_outputs.back(), expected_.of_output(t, j_))
                << "stage " << stage_ << ", microbatch " << j_ << ", tensor " << t;
        }
        std::map<size_t, Numbers> later;
        for (const size_t t : ends.read_later) {
            later[t] = numbers_in(next(activations));
            EXPECT_EQ(later[t], expected_.of_later(t, stage_, j_))
                << "stage " << stage_ << ", microbatch " << j_ << ", tensor " << t;
        }
        for (const size_t t : ends.read) {
            write_numbers(expected_.hand_on(t, stage_, j_, of_outputs, later[t]),
                          next(activations));
        }
        expect_end(activations);
        expect_saved(activations);
    }

    int stage_;
    StageBytes bytes_;
    bool has_x_, has_y_;
    ExpectedNumbers expected_;
    std::mt19937 random_;
    uint64_t j_ = 0;
    size_t next_ = 0;
    int passes_ = 0;
    bool has_gradient_ = false;
};

/// Vocabulary layers that compute nothing, in memory of which they write all.
class NoInput final : public InputLayer {
public:
    [[nodiscard]] std::span<Parameter> parameters() override { return {}; }
    void embed(Context&, const Microbatch&, Tensor out) override {
        std::fill_n(out.as<float>(), out.size(), 0.0F);
    }
    void gradient(Context&, const Microbatch&, ConstTensor, bool) override {}
};

class NoOutput final : public OutputLayer {
public:
    [[nodiscard]] std::span<Parameter> parameters() override { return {}; }
    void score(Context&, const Microbatch&, ConstTensor, Tensor, Tensor, Bytes) override {}
    void input_product(Context&, ConstTensor, Tensor) override {}
    void combine_softmax(Context&, const Microbatch&, ConstTensor, int, Tensor) override {}
    void finish_input_gradient(Context&, const Microbatch&, ConstTensor, Tensor) override {}
    void weight_gradient(Context&, const Microbatch&, ConstTensor, ConstTensor, ConstTensor, Bytes,
                         bool) override {}
};

constexpr int kStepsOfRun = 2;

/// Runs steps on threads, of which each rank's stages check everything.
void run_graph(const StageGraphCase& tested, const std::vector<Program>& programs, uint32_t seed) {
    std::vector<Microbatch> microbatches;
    for (int j = 0; j < tested.schedule.microbatches; ++j) {
        microbatches.push_back({.index = j, .sequences = 1, .seq_length = tested.sizes.tokens});
    }
    std::atomic<int> passes = 0;
    World::threads(tested.schedule.ranks, {.timeout_seconds = 30}).run([&](Communicator& world) {
        const std::unique_ptr<Device> device = make_host_device();
        std::vector<std::unique_ptr<CountingStage>> stages;
        RankModules modules;
        for (int stage = 0; stage < tested.schedule.stages; ++stage) {
            const bool here =
                tested.schedule.rank_of_stage[static_cast<size_t>(stage)] == world.rank();
            if (here) stages.push_back(std::make_unique<CountingStage>(tested, stage, seed));
            modules.stages.push_back(here ? stages.back().get() : nullptr);
        }
        NoInput input;
        NoOutput output;
        if (tested.schedule.input.rows(world.rank()) > 0) modules.input = &input;
        if (tested.schedule.output.rows(world.rank()) > 0) modules.output = &output;
        Executor executor(world, *device, modules, tested.sizes, {.poison_dead_buffers = true});
        executor.load(programs);
        for (int step = 0; step < kStepsOfRun; ++step) executor.run_step(microbatches);
        for (const auto& stage : stages) passes += stage->passes();
    });
    ptrdiff_t expected = 0;
    for (const auto& list : tested.schedule.passes) {
        expected +=
            std::ranges::count_if(list, [](const Pass& pass) { return traits(pass.op).has_stage; });
    }
    EXPECT_EQ(passes, kStepsOfRun * expected);
}

TEST(StageGraph, HandsEveryNumberOnWhateverTheTiming) {
    for (int i = 0; i < number_of_cases(400); ++i) {
        const auto seed = static_cast<uint32_t>(i) + 10'000;
        const StageGraphCase tested = random_case(seed, 4);
        SCOPED_TRACE(tested.description);
        const std::vector<Program> programs = lower(
            tested.schedule, tested.sizes, uneven_costs(tested.schedule), {.receive_ahead = i % 3});
        ASSERT_NO_THROW(run_graph(tested, programs, seed));
        ASSERT_FALSE(HasFailure());
    }
}

// --- graphs that are none ------------------------------------------------------------------------

TEST(StageGraph, IsRefusedWhereItIsNone) {
    const Schedule schedule = generated({"1f1b", VocabMode::none, false}, 3, 2);
    const StepSizes chain = sizes_for(schedule, 8, 4);
    const auto refused = [&](const std::vector<StageTensor>& tensors, const std::string& why,
                             const std::function<void(StepSizes&)>& change = {},
                             const LowerOptions& options = {}) {
        StepSizes sizes = chain;
        sizes.stage_tensors = tensors;
        if (change) change(sizes);
        EXPECT_THAT([&] { (void)lower(schedule, sizes, uneven_costs(schedule), options); },
                    ThrowsMessage<UsageError>("lowering: " + why))
            << list(tensors);
    };
    const auto wrong = [&](const StageTensor& tensor) {
        refused({tensor},
                "a tensor of stage " + std::to_string(tensor.maker) +
                    " must have bytes, and later stages of the schedule that read it, ascending");
    };
    wrong({.maker = 1, .readers = {0}, .bytes = 8});     // before its maker
    wrong({.maker = 1, .readers = {1}, .bytes = 8});     // its maker
    wrong({.maker = 0, .readers = {1, 1}, .bytes = 8});  // twice
    wrong({.maker = 0, .readers = {2, 1}, .bytes = 8});  // descending
    wrong({.maker = 0, .readers = {1, 3}, .bytes = 8});  // no stage of the schedule
    wrong({.maker = 3, .readers = {4}, .bytes = 8});     // likewise
    wrong({.maker = -1, .readers = {1}, .bytes = 8});    // likewise
    wrong({.maker = 0, .readers = {}, .bytes = 8});      // nobody
    wrong({.maker = 0, .readers = {1}, .bytes = 0});     // nothing
    wrong({.maker = 0, .readers = {1}, .bytes = -8});    // less
    const std::vector<StageTensor> right{{.maker = 0, .readers = {1, 2}, .bytes = 8}};
    refused(right, "stages that are a graph send whole tensors; set pieces to 1", {},
            {.pieces = 2});
    const std::string one_length =
        "stages that are a graph have sequences of one length, one tensor rank and one predicted "
        "token";
    refused(right, one_length, [](StepSizes& sizes) { sizes.tensor = 2; });
    refused(right, one_length, [](StepSizes& sizes) { sizes.predicted_tokens = 2; });
    refused(right, one_length, [&](StepSizes& sizes) {
        sizes.shorter.push_back({.tokens = 4, .stages = chain.stages, .shards = chain.shards});
    });
    const std::vector<StageTensor> many(70, right.front());
    refused(many,
            "stage 1 meets 210 tensors and gradients of other stages; at most 200 are possible");
    Schedule frozen = schedule;
    frozen.first_backward = 1;
    std::erase_if(frozen.passes[0],
                  [](const Pass& pass) { return pass.op == Op::B || pass.op == Op::G; });
    frozen.embedding_gradient = false;
    StepSizes sizes = chain;
    sizes.stage_tensors = right;
    EXPECT_THAT([&] { (void)lower(frozen, sizes, uneven_costs(frozen)); },
                ThrowsMessage<UsageError>("lowering: stages that are a graph all have a backward"));
}

TEST(StageGraph, MayHaveAsManyTensorsAsItSays) {
    const Schedule schedule = generated({"zb-h1", VocabMode::none, false}, 2, 3);
    StageGraphCase tested{.schedule = schedule, .sizes = sizes_for(schedule, 8, 4)};
    for (StageBytes& bytes : tested.sizes.stages) bytes = {};
    tested.sizes.stage_tensors =
        std::vector<StageTensor>(66, {.maker = 0, .readers = {1}, .bytes = 16});
    run_graph(tested, lower(schedule, tested.sizes, uneven_costs(schedule)), 1);
}

TEST(StageGraph, MayHaveNoTensorAtAll) {
    const Schedule schedule = make_schedule("1f1b", {.ranks = 3,
                                                     .microbatches = 4,
                                                     .vocab_size = 13,
                                                     .input_layer = false,
                                                     .output_layer = false});
    StageGraphCase tested{.schedule = schedule, .sizes = sizes_for(schedule, 8, 4)};
    for (StageBytes& bytes : tested.sizes.stages) bytes = {};
    tested.sizes.stage_tensors = std::vector<StageTensor>();
    run_graph(tested, lower(schedule, tested.sizes, uneven_costs(schedule)), 1);
}

}  // namespace
}  // namespace vocabpipe::testing

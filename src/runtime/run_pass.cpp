// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/run_pass.hpp"

#include "src/runtime/transport/transport.hpp"
#include "vocabpipe/operators.hpp"

namespace vocabpipe {

namespace {

constexpr int64_t kLongestRow = 1024;  // elements per row of an ordered_sum

}  // namespace

void PassRunner::run(const Action& action) {
    if (action.what == Do::combine_softmax) {
        combine_softmax(action);
    } else if (action.what == Do::ordered_sum) {
        ordered_sum(action);
    } else {
        run_pass(action, program_->passes[action.item]);
    }
}

// --- passes --------------------------------------------------------------------------------------

void PassRunner::run_pass(const Action& action, const Pass& pass) {
    const StepMemory& m = memory_;
    StageModule* stage = traits(pass.op).has_stage ? modules_.stages[pass.stage] : nullptr;
    const auto mb = [&]() -> const Microbatch& { return microbatches_[pass.microbatch]; };
    if (StreamedRows* const rows = context_.streamed()) {
        const bool asks =
            stage != nullptr ? stage->streams() : pass.op == Op::S && modules_.output->streams();
        if (!asks) rows->need(program_->tokens_of(action));
    }
    if (stage != nullptr) place_parameters(action, true);
    switch (pass.op) {
        case Op::F: {
            const auto o = operands<Op::F>(action);
            find_tensors<Op::F>(action);
            Activations made = activations(o.saved, o.recomputed);
            made.embedded = m.boundary(o.embedded);
            stage->forward(context_, mb(), m.boundary(o.x), m.boundary(o.y), made,
                           m.bytes(o.workspace));
            break;
        }
        case Op::R: {
            const auto o = operands<Op::R>(action);
            find_tensors<Op::R>(action);
            stage->recompute(context_, mb(), m.boundary(o.x), activations(o.saved, o.recomputed),
                             m.bytes(o.workspace));
            break;
        }
        case Op::B: {
            const auto o = operands<Op::B>(action);
            find_tensors<Op::B>(action);
            stage->backward(context_, mb(), m.boundary(o.dy), m.boundary(o.x),
                            activations(o.saved, o.recomputed, o.embedded_gradient),
                            m.boundary(o.dx), m.bytes(o.workspace), action.accumulate);
            break;
        }
        case Op::I: {
            const auto o = operands<Op::I>(action);
            find_tensors<Op::I>(action);
            stage->backward_input(context_, mb(), m.boundary(o.dy), m.boundary(o.x),
                                  activations(o.saved, o.recomputed, o.embedded_gradient),
                                  m.boundary(o.dx), m.bytes(o.for_weight), m.bytes(o.workspace));
            break;
        }
        case Op::W: {
            const auto o = operands<Op::W>(action);
            find_tensors<Op::W>(action);
            stage->backward_weight(context_, mb(), m.boundary(o.x),
                                   activations(o.saved, o.recomputed), m.bytes(o.for_weight),
                                   m.bytes(o.workspace), action.accumulate);
            break;
        }
        case Op::E:
            modules_.input->embed(context_, mb(), m.boundary(operands<Op::E>(action).embedded));
            break;
        case Op::G: {
            const auto o = operands<Op::G>(action);
            modules_.input->gradient(context_, mb(), m.boundary(o.gradient), action.accumulate);
            if (o.of_depths == kNoBuffer) break;
            modules_.input->gradient(context_, mb(), m.boundary(o.of_depths), true);
            break;
        }
        case Op::S:
            score(operands<Op::S>(action), mb());
            break;
        case Op::T:
            output_backward(operands<Op::T>(action), mb(), action.accumulate);
            break;
        case Op::Reduce:
            // Without a step module (gradients only) the two halves are not added.
            if (modules_.step == nullptr) break;
            if (program_->operands_of(action).size() > 1) {
                modules_.step->reduce_shared(context_, shared_gradients(action));
            } else {
                modules_.step->reduce_tied(context_,
                                           m.bytes(operands<Op::Reduce>(action).received));
            }
            break;
        case Op::Report:
            modules_.step->report(context_, m.bytes(operands<Op::Report>(action).report));
            break;
        case Op::Update:
            modules_.step->update(context_, m.bytes(operands<Op::Update>(action).reports));
            break;
    }
    if (stage != nullptr) place_parameters(action, false);
}

void PassRunner::place_parameters(const Action& action, bool there) const {
    for (const uint32_t operand : program_->operands_of(action)) {
        if (!is_of_parameters(operand)) continue;
        const Buffer& buffer = program_->buffers[operand];
        const Bytes whole = there ? memory_.bytes(operand) : Bytes();
        if (buffer.purpose == Purpose::stage_weights) {
            modules_.step->place_weights(buffer.bucket, whole);
        } else {
            modules_.step->place_gradients(buffer.bucket, whole);
        }
    }
}

std::vector<SharedGradient> PassRunner::shared_gradients(const Action& action) const {
    std::vector<SharedGradient> gradients;
    for (const uint32_t buffer :
         program_->operands_of(action).subspan(kOperandCount<OperandsOf<Op::Reduce>>)) {
        gradients.push_back(
            {.gradient = memory_.bytes(buffer),
             .own = program_->buffers[buffer].space == Buffer::Space::shared_gradient});
    }
    return gradients;
}

void PassRunner::score(const OperandsOf<Op::S>& o, const Microbatch& microbatch) {
    const Tensor x = memory_.boundary(o.x);
    const Tensor exp_logits = memory_.exp_logits(o.exp_logits, x.rows);
    modules_.output->score(context_, microbatch, x, exp_logits, memory_.statistics(o.statistics),
                           memory_.bytes(o.workspace));
    if (o.input_gradient == kNoBuffer) return;
    modules_.output->input_product(context_, exp_logits, memory_.input_gradient(o.input_gradient));
}

void PassRunner::output_backward(const OperandsOf<Op::T>& o, const Microbatch& microbatch,
                                 bool accumulate) {
    const Tensor x = memory_.boundary(o.x);
    const Tensor exp_logits = memory_.exp_logits(o.exp_logits, x.rows);
    const Tensor factors = memory_.factors(o.factors);
    modules_.output->prepare_gradient(context_, exp_logits, factors);
    if (o.input_gradient != kNoBuffer) {
        const Tensor gradient = memory_.input_gradient(o.input_gradient);
        modules_.output->input_product(context_, exp_logits, gradient);
        modules_.output->finish_input_gradient(context_, microbatch, factors, gradient);
        if (StreamedRows* const rows = context_.streamed()) rows->made(x.rows);
    }
    modules_.output->weight_gradient(context_, microbatch, x, exp_logits, factors,
                                     memory_.bytes(o.workspace), accumulate);
}

// --- local actions -------------------------------------------------------------------------------

void PassRunner::combine_softmax(const Action& action) {
    const auto o = operands<Do::combine_softmax>(action);
    const Microbatch& microbatch = microbatches_[action.item];
    const std::vector<int>& members = program_->groups[action.group].ranks;
    const Tensor factors = memory_.factors(o.factors);
    modules_.output->combine_softmax(context_, microbatch, memory_.statistics(o.statistics),
                                     member_of(members, rank_), factors);
    if (o.exp_logits != kNoBuffer) {
        modules_.output->rank_labels(context_, microbatch, memory_.statistics(o.statistics),
                                     memory_.exp_logits(o.exp_logits, microbatch.size()));
    }
    if (o.input_gradient == kNoBuffer) return;
    modules_.output->finish_input_gradient(context_, microbatch, factors,
                                           memory_.input_gradient(o.input_gradient));
}

void PassRunner::ordered_sum(const Action& action) {
    const auto o = operands<Do::ordered_sum>(action);
    const Reduction& reduction = program_->reductions[action.reduction];
    const std::vector<int>& members = program_->groups[action.group].ranks;
    const auto count = static_cast<int64_t>(members.size());
    const int member = member_of(members, rank_);
    int64_t rows = reduction.rows(member);
    if (rows == 0) return;
    int64_t cols = reduction.cols;
    if (cols == 1) {  // elements of a bucket: as longer rows, to suit the threads
        while (rows % 2 == 0 && cols < kLongestRow) {
            rows /= 2;
            cols *= 2;
        }
    }
    const Tensor blocks = memory_.tensor(o.blocks, count * rows, cols, reduction.partial);
    const Tensor sum = memory_.tensor(o.sum, rows, cols, reduction.result);
    const kernels::Operators& op = context_.operators();
    if (o.before == kNoBuffer) {
        op.ordered_sum(context_, blocks, count, memory_.sums_in_place(o.sum) ? member : -1, sum);
        return;
    }
    // First the blocks, in the place of the first one.
    const Tensor first = blocks.row_range(0, rows);
    op.ordered_sum(context_, blocks, count, 0, first);
    op.add(context_, sum, first, sum);
}

}  // namespace vocabpipe

// SPDX-License-Identifier: Apache-2.0
// The flags about training: data, learning rate, optimizer, evaluation.
#include "src/support/parse_number.hpp"
#include "src/train/options/parameter_group_flag.hpp"
#include "src/train/options/rule_flags.hpp"
#include "src/train/options/train_flags.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/lower.hpp"
#include "vocabpipe/receive_early.hpp"
#include "vocabpipe/step_pieces.hpp"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

namespace vocabpipe {

namespace {

BatchSizeRampUp ramp_up_from(const std::vector<std::string>& words) {
    if (words.size() != 3) {
        throw UsageError("--rampup-batch-size: got " + std::to_string(words.size()) +
                         " values; expected three: START INCREMENT SAMPLES");
    }
    const auto number = [](const std::string& word) {
        const std::optional<int64_t> value = parse_number<int64_t>(word);
        if (value) return *value;
        throw UsageError("--rampup-batch-size " + word +
                         ": is not an integer, or is out of range; use three decimal integers, "
                         "START INCREMENT SAMPLES");
    };
    return {.start = number(words[0]), .increment = number(words[1]), .samples = number(words[2])};
}

/// 0 is auto.
FlagText number_or_auto(int& value, int (*from)(std::string_view)) {
    return {.set = [&value, from](const auto& words) { value = from(words.back()); },
            .get = [&value] { return value == 0 ? std::string("auto") : std::to_string(value); }};
}

FlagText reductions_text(Reductions& value) {
    return {.set =
                [&value](const auto& words) {
                    value = words.back() == "native" ? Reductions::native : Reductions::ordered;
                },
            .get = [&value] { return value == Reductions::native ? "native" : "ordered"; }};
}

/// "auto", "F,B", two positive integers of which only the ratio matters, or a profile file.
void set_schedule_costs(TrainOptions& o, const std::string& text) {
    o.schedule_costs.reset();
    o.cost_file.clear();
    if (text == "auto") return;
    if (text.ends_with(".json")) {
        o.cost_file = text;
        return;
    }
    const size_t comma = std::min(text.find(','), text.size());
    const auto forward = parse_number<int64_t>(std::string_view(text).substr(0, comma));
    const auto backward =
        parse_number<int64_t>(std::string_view(text).substr(std::min(comma + 1, text.size())));
    const auto fits = [](const std::optional<int64_t>& cost) {
        return cost && *cost >= 1 && static_cast<double>(*cost) <= kMostCost;
    };
    if (!fits(forward) || !fits(backward)) {
        throw UsageError("--schedule-costs " + text +
                         ": must be auto, a profile FILE.json, or two positive integers F,B of at "
                         "most 2^36, such as 1,2");
    }
    o.schedule_costs = std::pair{*forward, *backward};
}

FlagGroup data_flags(DataOptions& o) {
    return {.title = "Data",
            .flags = {
                {.names = "--data-path",
                 .value = &o.path,
                 .help = "Tokens: a Megatron prefix, llm.c shards, or raw tokens (--data-format); "
                         "or a blend: WEIGHT NAME WEIGHT NAME ...",
                 .unit = "PATH",
                 .ranks = RanksCompare::presence,
                 .decides = Decides::nothing},
                {.names = "--split",
                 .value = &o.split,
                 .help = "Proportions of training, validation and test data in --data-path, such "
                         "as 969,30,1",
                 .unit = "A,B,C",
                 .unset = "training data only"},
                {.names = "--train-data-path",
                 .value = &o.train_path,
                 .help = "Training data, in the form of --data-path, when validation data has its "
                         "own files",
                 .unit = "PATH",
                 .ranks = RanksCompare::presence,
                 .decides = Decides::nothing},
                {.names = "--valid-data-path",
                 .value = &o.valid_path,
                 .help = "Validation data, in the form of --data-path",
                 .unit = "PATH",
                 .ranks = RanksCompare::presence,
                 .decides = Decides::nothing},
                {.names = "--test-data-path",
                 .value = &o.test_path,
                 .help = "Test data, in the form of --data-path",
                 .unit = "PATH",
                 .ranks = RanksCompare::presence,
                 .decides = Decides::nothing},
                {.names = "--data-subset",
                 .value = &o.subset,
                 .help = "Train only on these samples, a file of vocabpipe select run that was "
                         "made from the same data, --split and --seq-length",
                 .unit = "FILE",
                 .unset = "all samples",
                 .ranks = RanksCompare::presence,
                 // Its contents decide the samples: see check_same_subset().
                 .decides = Decides::nothing},
                {.names = "--columns",
                 .value = &o.columns,
                 .help = "Numbers of every token of the training samples that --loss reads, "
                         ".safetensors or .npy, as vocabpipe score writes them",
                 .unit = "FILE",
                 .ranks = RanksCompare::presence,
                 // Its contents are compared between ranks, and their checksum is recorded. New
                 // answers have new columns, so a run may go on with another file.
                 .decides = Decides::nothing},
                {.names = "--data-format",
                 .value = &o.format,
                 .help = "Format of the data files; raw files hold only tokens",
                 .unit = "NAME",
                 .choices = {"auto", "raw-u8", "raw-u16", "raw-u32"},
                 .decides = Decides::nothing},
                {.names = "--eod-token-id",
                 .value = &o.eod_token_id,
                 .help = "ID of the token that ends a document",
                 .unit = "ID",
                 .range = at_least(0),
                 .unset = "from the data",
                 .absent = -1},
                {.names = "--eod-mask-loss",
                 .value = &o.eod_mask_loss,
                 .help = "Exclude the loss at positions whose input ends a document"},
                {.names = "--reset-attention-mask",
                 .value = &o.reset_attention_mask,
                 .help = "Restrict attention to tokens of the same document"},
                {.names = "--reset-position-ids",
                 .value = &o.reset_position_ids,
                 .help = "Count learned positions from the beginning of the document; with "
                         "--reset-attention-mask"},
                {.names = "--packing-strategy",
                 .value = &o.packing_strategy,
                 .help = "How samples are made: wrapped cuts the stream; bfd packs whole documents "
                         "by best fit, each with attention and positions of its own; padded makes "
                         "a sample of each",
                 .unit = "NAME",
                 .choices = {"wrapped", "bfd", "padded"},
                 .decides = Decides::samples},
                {.names = "--length-buckets",
                 .value = &o.length_buckets,
                 .help = "Lengths that training samples of whole documents may have, with commas "
                         "between them, --seq-length among them; or auto, which chooses up to four "
                         "by the lengths of the documents",
                 .unit = "LENGTHS",
                 .unset = "--seq-length",
                 .decides = Decides::samples},
            }};
}

FlagGroup learning_rate_flags(TrainOptions& o) {
    LearningRateOptions& l = o.learning_rate;
    return {
        .title = "Steps and learning rate",
        .flags = {
            {.names = "--train-iters",
             .value = &o.train_iters,
             .help = "Number of training steps",
             .unit = "STEPS",
             .range = at_least(1)},
            {.names = "--rampup-batch-size",
             .value = FlagText{.set =
                                   [&o](const std::vector<std::string>& words) {
                                       o.ramp_up = ramp_up_from(words);
                                   },
                               .get =
                                   [&o] {
                                       return o.ramp_up
                                                  ? std::to_string(o.ramp_up->start) + " " +
                                                        std::to_string(o.ramp_up->increment) + " " +
                                                        std::to_string(o.ramp_up->samples)
                                                  : std::string();
                                   }},
             .help = "Batch-size warm-up: start with START sequences per step, add INCREMENT at a "
                     "time, and reach --global-batch-size within SAMPLES sequences",
             .unit = "START INCREMENT SAMPLES",
             .words = 3},
            {.names = "--lr",
             .value = &o.lr,
             .help = "Peak learning rate",
             .unit = "X",
             .range = at_least(0)},
            {.names = "--min-lr",
             .value = &o.min_lr,
             .help = "Learning rate at the end of the decay",
             .unit = "X",
             .range = at_least(0)},
            {.names = "--lr-warmup-iters",
             .value = &o.lr_warmup_iters,
             .help = "Length of the linear learning-rate warm-up",
             .unit = "STEPS",
             .range = at_least(0)},
            {.names = "--lr-warmup-fraction",
             .value = &l.warmup_fraction,
             .help = "Length of the warm-up as a fraction of --lr-decay-iters",
             .unit = "X",
             .range = between(0, 1),
             .unset = "set by --lr-warmup-iters"},
            {.names = "--lr-warmup-init",
             .value = &l.warmup_init,
             .help = "Learning rate at the start of the warm-up",
             .unit = "X",
             .range = at_least(0),
             .unset = "0"},
            {.names = "--lr-decay-style",
             .value = FlagText{
                 .set = [&l](const auto& words) { l.style = decay_style_from(words.back()); },
                 .get = [&l] { return std::string(to_string(l.style)); }},
             .help = "Shape of the decay after the warm-up; WSD: warm-up, stable, decay",
             .unit = "NAME",
             .choices = {"constant", "linear", "cosine", "WSD"}},
            {.names = "--lr-decay-iters",
             .value = &l.decay_iters,
             .help = "Step at which the learning rate reaches --min-lr",
             .unit = "STEPS",
             .range = at_least(1),
             .unset = "--train-iters",
             .meaning = [&o, &l] { return std::to_string(l.decay_iters.value_or(o.train_iters)); }},
            {.names = "--lr-wsd-decay-style",
             .value = FlagText{
                 .set =
                     [&l](const auto& words) { l.wsd_style = wsd_decay_style_from(words.back()); },
                 .get = [&l] { return std::string(l.wsd_style ? to_string(*l.wsd_style) : ""); }},
             .help = "Shape of the WSD decay",
             .unit = "NAME",
             .choices = {"linear", "cosine", "exponential", "minus_sqrt"},
             .unset = "exponential"},
            {.names = "--lr-wsd-decay-iters",
             .value = &l.wsd_decay_iters,
             .help = "Length of the WSD decay",
             .unit = "STEPS",
             .range = at_least(1),
             .unset = "none; required with WSD"},
        }};
}

FlagGroup optimizer_flags(TrainOptions& t) {
    OptimizerOptions& o = t.optimizer;
    return {.title = "Optimizer",
            .flags = {
                {.names = "--weight-decay",
                 .value = &o.weight_decay,
                 .help = "Decoupled weight decay of matrices",
                 .unit = "X",
                 .range = at_least(0)},
                parameter_group_flag(o.groups),
                {.names = "--clip-grad",
                 .value = &o.clip_grad,
                 .help = "Maximum global gradient norm; 0: no clipping",
                 .unit = "X",
                 .range = at_least(0)},
                {.names = "--adam-beta1",
                 .value = &o.beta1,
                 .help = "Adam: decay rate of the mean gradient",
                 .unit = "X",
                 .range = fraction_below_1()},
                {.names = "--adam-beta2",
                 .value = &o.beta2,
                 .help = "Adam: decay rate of the mean squared gradient",
                 .unit = "X",
                 .range = fraction_below_1()},
                {.names = "--adam-eps",
                 .value = &o.epsilon,
                 .help = "Adam: epsilon added to the root of the mean squared gradient",
                 .unit = "X",
                 .range = above(0)},
                {.names = "--check-for-nan-in-loss-and-grad,!--no-check-for-nan-in-loss-and-grad",
                 .value = &t.stop_at_non_finite,
                 .help = "End the run when a loss or gradient is not finite",
                 .unset = "report it and skip the step",
                 .decides = Decides::nothing},
                {.names = "--reduction",
                 .value = reductions_text(t.reductions),
                 .help = "How to add up the partial sums of vocabulary shards: ordered (same bits "
                         "on every transport) or native (the transport's own reduction)",
                 .unit = "NAME",
                 .choices = {"ordered", "native"}},
                {.names = "--tile-pieces",
                 .value = number_or_auto(t.tile_pieces, tile_pieces_from),
                 .help = "By how many pieces boundaries between stages travel while they are made "
                         "and used, and what tensor and expert ranks exchange; or auto: as many "
                         "as simulate the shortest step under measured --schedule-costs or the "
                         "rates of --overlap-table, else 1; of what ranks exchange what the table "
                         "found fastest",
                 .unit = "PIECES",
                 .choices = {"auto"},
                 .free = true,
                 .decides = Decides::nothing},
                {.names = "--overlap-table",
                 .value = &t.overlap_table,
                 .help = "What vocabpipe profile --overlap measured, to choose --tile-pieces by",
                 .unit = "FILE",
                 .decides = Decides::nothing},
                {.names = "--blocking-exchanges",
                 .value = &t.blocking_exchanges,
                 .help = "What tensor, context and expert ranks exchange travels whole and beside "
                         "no product, to see what overlap saves; results are the same",
                 .decides = Decides::nothing,
                 .excludes = {"--tile-pieces", "--overlap-table"}},
                {.names = "--receive-ahead",
                 .value = number_or_auto(t.receive_ahead, receive_ahead_from),
                 .help = "How many passes before its use to post a receive, or auto: as early as "
                         "useful within the memory limit",
                 .unit = "PASSES",
                 .choices = {"auto"},
                 .free = true,
                 .decides = Decides::nothing},
            }};
}

FlagGroup cost_flags(TrainOptions& o) {
    return {.title = "Costs of passes",
            .flags = {
                {.names = "--schedule-costs",
                 .value = FlagText{
                     .set = [&o](const auto& words) { set_schedule_costs(o, words.back()); },
                     .get =
                         [&o] {
                             return o.schedule_costs
                                        ? std::to_string(o.schedule_costs->first) + "," +
                                              std::to_string(o.schedule_costs->second)
                                    : o.cost_file.empty() ? "auto"
                                                          : o.cost_file;
                         }},
                 .help = "Costs to optimize the order of passes for: a ratio F,B; a profile "
                         "FILE.json; or auto (measured in the first steps)",
                 .unit = "COSTS",
                 .choices = {"auto"},
                 .free = true},
            }};
}

FlagGroup evaluation_flags(EvaluationOptions& e) {
    return {.title = "Evaluation",
            .flags = {
                {.names = "--eval-interval",
                 .value = &e.interval,
                 .help = "Number of steps between evaluations",
                 .unit = "STEPS",
                 .range = at_least(1),
                 .decides = Decides::nothing},
                {.names = "--eval-iters",
                 .value = &e.iters,
                 .help = "Global batches of validation data per evaluation",
                 .unit = "N",
                 .range = between(0, INT32_MAX),
                 .decides = Decides::nothing},
                {.names = "--multiple-choice-path",
                 .value = &e.multiple_choice_path,
                 .help = "Multiple-choice evaluation set in llm.c's format, such as HellaSwag; its "
                         "accuracy is reported",
                 .unit = "FILE",
                 .ranks = RanksCompare::presence,
                 .decides = Decides::nothing},
                {.names = "--skip-train",
                 .value = &e.skip_train,
                 .help = "Evaluate once without training, then exit",
                 .decides = Decides::nothing},
            }};
}

}  // namespace

std::vector<FlagGroup> training_flags(TrainOptions& options) {
    return {data_flags(options.data),
            loss_flags(options.loss),
            learning_rate_flags(options),
            sample_flags(options),
            optimizer_flags(options),
            cost_flags(options),
            evaluation_flags(options.evaluation),
            saved_step_flags(options),
            output_flags(options),
            verification_flags(options),
            end_flags(options)};
}

}  // namespace vocabpipe

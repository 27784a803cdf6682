// SPDX-License-Identifier: Apache-2.0
// Rows about training: data, learning rate, optimizer, evaluation, saved steps, outputs, the end.
#include "src/support/parse_number.hpp"
#include "src/train/optimizer/parameter_groups.hpp"
#include "src/train/options/train_flags.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/receive_early.hpp"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

namespace vocabpipe {

namespace {

/// Of a pass, in any unit: a sixteenth of what make_schedule() allows.
constexpr double kMostCost = 0x1p36;

BatchSizeRampUp ramp_up_from(const std::vector<std::string>& words) {
    if (words.size() != 3) {
        throw UsageError("--rampup-batch-size: has " + std::to_string(words.size()) +
                         " values; give three, START INCREMENT SAMPLES");
    }
    const auto number = [](const std::string& word) {
        const std::optional<int64_t> value = parse_number<int64_t>(word);
        if (value) return *value;
        throw UsageError("--rampup-batch-size " + word +
                         ": not a number, or out of range; give three decimal integers, START "
                         "INCREMENT SAMPLES");
    };
    return {.start = number(words[0]), .increment = number(words[1]), .samples = number(words[2])};
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
                 .help = "Megatron prefix, llm.c shards, or raw tokens with --data-format; or a "
                         "blend of several: WEIGHT NAME WEIGHT NAME ...",
                 .unit = "PATH",
                 .ranks = RanksCompare::presence,
                 .decides = Decides::nothing},
                {.names = "--split",
                 .value = &o.split,
                 .help = "Proportions of training, validation and test data in --data-path, such "
                         "as 969,30,1",
                 .unit = "A,B,C",
                 .unset = "all of it is for training"},
                {.names = "--train-data-path",
                 .value = &o.train_path,
                 .help = "Training data, as --data-path, where validation data has files of its "
                         "own",
                 .unit = "PATH",
                 .ranks = RanksCompare::presence,
                 .decides = Decides::nothing},
                {.names = "--valid-data-path",
                 .value = &o.valid_path,
                 .help = "Validation data, as --data-path",
                 .unit = "PATH",
                 .ranks = RanksCompare::presence,
                 .decides = Decides::nothing},
                {.names = "--test-data-path",
                 .value = &o.test_path,
                 .help = "Test data, as --data-path",
                 .unit = "PATH",
                 .ranks = RanksCompare::presence,
                 .decides = Decides::nothing},
                {.names = "--data-format",
                 .value = &o.format,
                 .help = "Of the files; raw ones have tokens and nothing else",
                 .unit = "NAME",
                 .choices = {"auto", "raw-u8", "raw-u16", "raw-u32"},
                 .decides = Decides::nothing},
                {.names = "--eod-token-id",
                 .value = &o.eod_token_id,
                 .help = "Token that ends a document",
                 .unit = "ID",
                 .range = at_least(0),
                 .unset = "as the data says",
                 .absent = -1},
                {.names = "--eod-mask-loss",
                 .value = &o.eod_mask_loss,
                 .help = "No loss where the input is the end of a document"},
                {.names = "--reset-attention-mask",
                 .value = &o.reset_attention_mask,
                 .help = "Tokens see their own document only"},
            }};
}

FlagGroup learning_rate_flags(TrainOptions& o) {
    LearningRateOptions& l = o.learning_rate;
    return {
        .title = "Steps and learning rate",
        .flags = {
            {.names = "--train-iters",
             .value = &o.train_iters,
             .help = "Length of the run",
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
             .help = "Batch-size warm-up: from START sequences per step to "
                     "--global-batch-size, INCREMENT more at a time, within the first SAMPLES "
                     "sequences",
             .unit = "START INCREMENT SAMPLES",
             .words = 3},
            {.names = "--lr",
             .value = &o.lr,
             .help = "Largest learning rate",
             .unit = "X",
             .range = at_least(0)},
            {.names = "--min-lr",
             .value = &o.min_lr,
             .help = "Learning rate at the end of the decay",
             .unit = "X",
             .range = at_least(0)},
            {.names = "--lr-warmup-iters",
             .value = &o.lr_warmup_iters,
             .help = "Linear warm-up",
             .unit = "STEPS",
             .range = at_least(0)},
            {.names = "--lr-warmup-fraction",
             .value = &l.warmup_fraction,
             .help = "The same as a part of --lr-decay-iters",
             .unit = "X",
             .range = between(0, 1),
             .unset = "by --lr-warmup-iters"},
            {.names = "--lr-warmup-init",
             .value = &l.warmup_init,
             .help = "Learning rate that the warm-up begins at",
             .unit = "X",
             .range = at_least(0),
             .unset = "0"},
            {.names = "--lr-decay-style",
             .value = FlagText{
                 .set = [&l](const auto& words) { l.style = decay_style_from(words.back()); },
                 .get = [&l] { return std::string(to_string(l.style)); }},
             .help = "How it falls after the warm-up; WSD: warm-up, stable, decay",
             .unit = "NAME",
             .choices = {"constant", "linear", "cosine", "WSD"}},
            {.names = "--lr-decay-iters",
             .value = &l.decay_iters,
             .help = "Step at which --min-lr is reached",
             .unit = "STEPS",
             .range = at_least(1),
             .unset = "--train-iters",
             .meaning = [&o, &l] { return std::to_string(l.decay_iters.value_or(o.train_iters)); }},
            {.names = "--lr-wsd-decay-style",
             .value = FlagText{
                 .set =
                     [&l](const auto& words) { l.wsd_style = wsd_decay_style_from(words.back()); },
                 .get = [&l] { return std::string(l.wsd_style ? to_string(*l.wsd_style) : ""); }},
             .help = "Decay of WSD",
             .unit = "NAME",
             .choices = {"linear", "cosine", "exponential", "minus_sqrt"},
             .unset = "exponential"},
            {.names = "--lr-wsd-decay-iters",
             .value = &l.wsd_decay_iters,
             .help = "Decay of WSD, at the end",
             .unit = "STEPS",
             .range = at_least(1),
             .unset = "must be given with WSD"},
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
                {.names = "--param-group",
                 .value = FlagText{.set =
                                       [&o](const std::vector<std::string>& groups) {
                                           o.groups.clear();
                                           for (const std::string& text : groups) {
                                               o.groups.push_back(parse_parameter_group(text));
                                           }
                                       },
                                   .get =
                                       [&o] {
                                           std::string all;
                                           for (const ParameterGroup& group : o.groups) {
                                               all += (all.empty() ? "" : " ") + group.text;
                                           }
                                           return all;
                                       }},
                 .help = "'PATTERN:weight_decay=X,lr_mult=Y': weight decay and factor of the "
                         "learning rate of tensors, by name with * and ?; may be given again, "
                         "the first match counts",
                 .unit = "GROUP",
                 .repeats = true},
                {.names = "--clip-grad",
                 .value = &o.clip_grad,
                 .help = "Largest global gradient norm; 0: off",
                 .unit = "X",
                 .range = at_least(0)},
                {.names = "--adam-beta1",
                 .value = &o.beta1,
                 .help = "Adam: what is kept per step of the mean gradient",
                 .unit = "X",
                 .range = fraction_below_1()},
                {.names = "--adam-beta2",
                 .value = &o.beta2,
                 .help = "Adam: what is kept per step of the mean squared gradient",
                 .unit = "X",
                 .range = fraction_below_1()},
                {.names = "--adam-eps",
                 .value = &o.epsilon,
                 .help = "Adam: added to the root of the mean squared gradient",
                 .unit = "X",
                 .range = above(0)},
                {.names = "--check-for-nan-in-loss-and-grad,!--no-check-for-nan-in-loss-and-grad",
                 .value = &t.stop_at_non_finite,
                 .help = "End the run at a loss or gradient that is not finite",
                 .unset = "name it and skip the step",
                 .decides = Decides::nothing},
                {.names = "--reduction",
                 .value = FlagText{.set =
                                       [&t](const auto& words) {
                                           t.reductions = words.back() == "native"
                                                              ? Reductions::native
                                                              : Reductions::ordered;
                                       },
                                   .get =
                                       [&t] {
                                           return std::string(t.reductions == Reductions::native
                                                                  ? "native"
                                                                  : "ordered");
                                       }},
                 .help = "How partial sums of vocabulary shards are added up: ordered (the same "
                         "bits on every transport) or native (the transport's own reduction)",
                 .unit = "NAME",
                 .choices = {"ordered", "native"}},
                {.names = "--receive-ahead",
                 .value = FlagText{.set =
                                       [&t](const auto& words) {
                                           t.receive_ahead = receive_ahead_from(words.back());
                                       },
                                   .get =
                                       [&t] {
                                           return t.receive_ahead == 0
                                                      ? std::string("auto")
                                                      : std::to_string(t.receive_ahead);
                                       }},
                 .help = "Passes before its use that a receive is posted, or auto: as early as it "
                         "pays and memory allows",
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
                 .help = "What the order is built for: a ratio F,B; a profile FILE.json; or auto, "
                         "measured in the first steps",
                 .unit = "COSTS",
                 .choices = {"auto"},
                 .free = true},
                {.names = "--broadcast-margin,--c0-margin",
                 .value = &o.broadcast_margin,
                 .help = "Part of B kept free for the broadcast of X, in the unit of F,B; "
                         "nanoseconds with a profile or auto",
                 .unit = "COST",
                 .range = between(0, kMostCost)},
            }};
}

FlagGroup evaluation_flags(EvaluationOptions& e) {
    return {.title = "Evaluation",
            .flags = {
                {.names = "--eval-interval",
                 .value = &e.interval,
                 .help = "From one evaluation to the next",
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
                 .help = "Evaluation set in llm.c's format, HellaSwag for one: its accuracy is "
                         "reported",
                 .unit = "FILE",
                 .ranks = RanksCompare::presence,
                 .decides = Decides::nothing},
                {.names = "--skip-train",
                 .value = &e.skip_train,
                 .help = "Evaluate once, without training, and end",
                 .decides = Decides::nothing},
            }};
}

FlagGroup saved_step_flags(TrainOptions& o) {
    return {.title = "Saved steps",
            .flags = {
                {.names = "--load",
                 .value = &o.load,
                 .help = "Go on from the newest step in a folder, from one step, or from the "
                         "weights of a Hugging Face model",
                 .unit = "FOLDER",
                 .decides = Decides::nothing},
                {.names = "--finetune",
                 .value = &o.finetune,
                 .help = "With --load of a step: its weights only, training begins at step 1",
                 .decides = Decides::nothing},
                {.names = "--save",
                 .value = &o.save,
                 .help = "For steps to go on from; written after the last step",
                 .unit = "FOLDER",
                 .decides = Decides::nothing},
                {.names = "--save-interval",
                 .value = &o.save_interval,
                 .help = "Save after every so many, too",
                 .unit = "STEPS",
                 .range = at_least(0),
                 .unset = "after the last only",
                 .decides = Decides::nothing},
                {.names = "--save-total-limit",
                 .value = &o.save_total_limit,
                 .help = "Complete steps to keep in the folder",
                 .unit = "STEPS",
                 .range = at_least(0),
                 .unset = "all",
                 .decides = Decides::nothing},
                {.names = "--max-shard-size",
                 .value = FlagBytes{&o.max_shard_bytes},
                 .help = "Most bytes of weights in a saved file, such as 500MB",
                 .unit = "BYTES",
                 .unset = "5GB",
                 .decides = Decides::nothing},
                {.names = "--async-save",
                 .value = &o.async_save,
                 .help = "Copy the state and write it beside the following steps; takes host "
                         "memory for the copy",
                 .decides = Decides::nothing},
            }};
}

FlagGroup output_flags(TrainOptions& o) {
    return {.title = "Outputs",
            .flags = {
                {.names = "--log-interval",
                 .value = &o.log_interval,
                 .help = "Per log line; on a terminal there is a progress bar without it",
                 .unit = "STEPS",
                 .range = at_least(1),
                 .decides = Decides::nothing},
                {.names = "--metrics",
                 .value = &o.metrics,
                 .help = "One JSON object per step",
                 .unit = "FILE",
                 .decides = Decides::nothing},
                {.names = "--report",
                 .value = &o.report,
                 .help = "The final report as JSON",
                 .unit = "FILE",
                 .decides = Decides::nothing},
                {.names = "--profile",
                 .value = &o.profile,
                 .help = "The measured costs of passes and links",
                 .unit = "FILE",
                 .decides = Decides::nothing},
                {.names = "--trace-dir",
                 .value = &o.trace_dir,
                 .help = "Chrome traces of the last step",
                 .unit = "FOLDER",
                 .decides = Decides::nothing},
                {.names = "--tensorboard-dir",
                 .value = &o.tensorboard_dir,
                 .help = "TensorBoard event files",
                 .unit = "FOLDER",
                 .decides = Decides::nothing},
                {.names = "--tensorboard-log-interval",
                 .value = &o.tensorboard_log_interval,
                 .help = "Per point in TensorBoard",
                 .unit = "STEPS",
                 .range = at_least(1),
                 .decides = Decides::nothing},
                {.names = "--time-products",
                 .value = &o.time_products,
                 .help = "The fastest algorithms of the matrix products that the run used on "
                         "GPUs, timed after its last step; for --product-choices of later runs",
                 .unit = "FILE",
                 .decides = Decides::nothing},
            }};
}

FlagGroup end_flags(TrainOptions& o) {
    return {.title = "Ending early",
            .flags = {
                {.names = "--exit-interval",
                 .value = &o.exit_interval,
                 .help = "Save and end after a step that is a multiple of this",
                 .unit = "STEPS",
                 .range = at_least(0),
                 .unset = "never",
                 .decides = Decides::nothing},
                {.names = "--exit-duration-in-mins",
                 .value = &o.exit_duration_minutes,
                 .help = "Save and end after this time",
                 .unit = "MINUTES",
                 .range = above(0),
                 .unset = "never",
                 .decides = Decides::nothing},
            }};
}

}  // namespace

std::vector<FlagGroup> training_flags(TrainOptions& options) {
    return {data_flags(options.data),
            learning_rate_flags(options),
            optimizer_flags(options),
            cost_flags(options),
            evaluation_flags(options.evaluation),
            saved_step_flags(options),
            output_flags(options),
            end_flags(options)};
}

}  // namespace vocabpipe

// SPDX-License-Identifier: Apache-2.0
#include "src/tool/optimizer_flags.hpp"

#include "src/train/parameter_groups.hpp"

namespace vocabpipe::tool {

namespace {

void add_learning_rate(CLI::App& app, TrainOptions& t) {
    LearningRateOptions& l = t.learning_rate;
    app.add_option("--lr", t.lr, "Largest learning rate")->capture_default_str();
    app.add_option("--min-lr", t.min_lr, "Learning rate at the end of the decay")
        ->capture_default_str();
    app.add_option("--lr-warmup-iters", t.lr_warmup_iters, "Steps of linear warm-up")
        ->capture_default_str();
    app.add_option("--lr-warmup-fraction", l.warmup_fraction,
                   "The same as a share of --lr-decay-iters");
    app.add_option("--lr-warmup-init", l.warmup_init,
                   "Learning rate that the warm-up begins at (default: 0)");
    app.add_option_function<std::string>(
           "--lr-decay-style", [&l](const std::string& name) { l.style = decay_style_from(name); },
           "constant, linear, cosine, or WSD (warm-up, stable, decay)")
        ->default_str("cosine");
    app.add_option("--lr-decay-iters", l.decay_iters,
                   "Step at which --min-lr is reached (default: --train-iters)");
    app.add_option_function<std::string>(
        "--lr-wsd-decay-style",
        [&l](const std::string& name) { l.wsd_style = wsd_decay_style_from(name); },
        "Decay of WSD: linear, cosine, exponential (default) or minus_sqrt");
    app.add_option("--lr-wsd-decay-iters", l.wsd_decay_iters, "Steps of the decay of WSD");
}

}  // namespace

void add_optimizer_flags(CLI::App& app, TrainOptions& t) {
    add_learning_rate(app, t);
    OptimizerOptions& o = t.optimizer;
    app.add_option("--weight-decay", o.weight_decay, "Decoupled weight decay of matrices")
        ->capture_default_str();
    app.add_option_function<std::vector<std::string>>(
           "--param-group",
           [&o](const std::vector<std::string>& groups) {
               o.groups.clear();
               for (const std::string& text : groups) {
                   o.groups.push_back(parse_parameter_group(text));
               }
           },
           "'PATTERN:weight_decay=X,lr_mult=Y': weight decay and factor of the learning rate of "
           "tensors, by name with * and ?; may be given again, the first match counts")
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
        ->allow_extra_args(false);
    app.add_option("--clip-grad", o.clip_grad, "Largest global gradient norm; 0: off")
        ->capture_default_str();
    app.add_option("--adam-beta1", o.beta1)->capture_default_str();
    app.add_option("--adam-beta2", o.beta2)->capture_default_str();
    app.add_option("--adam-eps", o.epsilon)->capture_default_str();
    app.add_flag("--check-for-nan-in-loss-and-grad,!--no-check-for-nan-in-loss-and-grad",
                 t.stop_at_non_finite,
                 "End the run at a loss or gradient that is not finite (default: name it and skip "
                 "the step)");
}

}  // namespace vocabpipe::tool

// SPDX-License-Identifier: Apache-2.0
#include "src/model/config/field_groups.hpp"
#include "src/model/config_json/config_values.hpp"

#include <nlohmann/json.hpp>

namespace vocabpipe {

std::vector<ModelField> run_fields(ModelConfig& m) {
    std::vector<ModelField> fields{
        {.member = "seq_length",
         .flag = {.names = "--seq-length",
                  .value = &m.seq_length,
                  .help = "Sequence length",
                  .unit = "TOKENS",
                  .range = between(1, static_cast<double>(kWidest)),
                  .decides = Decides::samples}},
        {.member = "dtype",
         .key = "torch_dtype",
         .flag = {.names = "--dtype",
                  .value = FlagText{
                      .set =
                          [&m](const auto& words) {
                              m.dtype = words.back() == "bf16" ? DType::bf16 : DType::fp32;
                          },
                      .get =
                          [&m] { return std::string(m.dtype == DType::bf16 ? "bf16" : "fp32"); }},
                  .help = "Type of weights and activations; sums and moments are fp32",
                  .unit = "NAME",
                  .choices = {"fp32", "bf16"}}},
        {.member = "init_std",
         .key = "initializer_range",
         .flag = {.names = "--init-method-std",
                  .value = &m.init_std,
                  .help = "Standard deviation of initial weights",
                  .unit = "X",
                  .range = at_least(0)}},
        {.member = "label_smoothing",
         .flag = {.names = "--label-smoothing",
                  .value = &m.label_smoothing,
                  .help = "Share of the loss that is spread evenly over all tokens, in [0, 1)",
                  .unit = "X",
                  .range = fraction_below_1()}},
        {.member = "z_loss",
         .flag = {.names = "--z-loss",
                  .value = &m.z_loss,
                  .help = "Weight of the squared log partition function in the loss",
                  .unit = "X",
                  .range = at_least(0)}},
        {.member = "mtp_loss_scaling_factor",
         .flag = {.names = "--mtp-loss-scaling-factor",
                  .value = &m.mtp_loss_scaling_factor,
                  .help = "Weight of the mean loss of --mtp-num-layers in the loss",
                  .unit = "X",
                  .range = above(0)}},
        {.member = "moe.aux_loss",
         .key = "router_aux_loss_coef",
         .flag = {.names = "--moe-aux-loss-coeff",
                  .value = &m.moe.aux_loss,
                  .help = "Weight of the load balancing loss of a layer's experts",
                  .unit = "X",
                  .range = at_least(0)}},
        {.member = "moe.bias_rate",
         .flag = {.names = "--moe-router-bias-update-rate",
                  .value = &m.moe.bias_rate,
                  .help = "What a step adds to or takes from the correction bias of an expert",
                  .unit = "X",
                  .range = above(0),
                  .unset = "0.001",
                  .meaning =
                      [&m] { return m.moe.bias_rate > 0 ? shortest_text(m.moe.bias_rate) : ""; }}},
        {.member = "moe.z_loss",
         .flag = {.names = "--moe-z-loss-coeff",
                  .value = &m.moe.z_loss,
                  .help = "Weight of the squared log partition function of a layer's router",
                  .unit = "X",
                  .range = at_least(0)}},
        {.member = "begin_of_text",
         .key = "bos_token_id",
         .text = [&m] { return m.begin_of_text ? std::to_string(*m.begin_of_text) : ""; }},
        {.member = "ends_of_text",
         .key = "eos_token_id",
         .text = [&m] { return nlohmann::json(m.ends_of_text).dump(); }},
    };
    for (ModelField& field : fields) {
        field.scope = field.flag.names.empty() ? FieldScope::text : FieldScope::run;
    }
    return fields;
}

}  // namespace vocabpipe

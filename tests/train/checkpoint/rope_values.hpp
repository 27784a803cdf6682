// SPDX-License-Identifier: Apache-2.0
// Written by rope_values.py with torch 2.8.0 and transformers 5.23.0.
#pragma once

#include <vector>

namespace vocabpipe::testing {

/// Values of a head of 16 and max_position_embeddings 4096.
struct RopeValues {
    const char* parameters;           ///< rope_parameters of config.json
    double amplitude;                 ///< of cos and sin
    std::vector<double> frequencies;  ///< fp32
};

inline const std::vector<RopeValues> kRopeValues{
    {R"({"rope_type": "default"})",
     1,
     {1, 0.316227764, 0.100000001, 0.0316227786, 0.00999999978, 0.00316227786, 0.00100000005,
      0.000316227786}},
    {R"({"rope_type": "linear", "factor": 3.0})",
     1,
     {0.333333343, 0.105409257, 0.0333333351, 0.0105409259, 0.00333333318, 0.00105409266,
      0.000333333359, 0.000105409265}},
    {R"({"rope_type": "dynamic", "factor": 2.5})",
     1,
     {1, 0.316227764, 0.100000001, 0.0316227786, 0.00999999978, 0.00316227786, 0.00100000005,
      0.000316227786}},
    {R"({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 512})",
     1,
     {1, 0.316227764, 0.100000001, 0.0184966773, 0.00124999997, 0.000395284733, 0.000125000006,
      3.95284733e-05}},
    {R"({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 9.0, "original_max_position_embeddings": 100, "rope_theta": 500000.0})",
     1,
     {1, 0.0684930235, 0.00470075384, 0.000911583134, 0.000176776681, 3.42810235e-05,
      6.64786967e-06, 1.28917316e-06}},
    {R"({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192, "rope_theta": 500000.0})",
     1,
     {1, 0.193922758, 0.0376060307, 0.00729266508, 0.000524846022, 3.42810235e-05, 6.64786967e-06,
      1.28917316e-06}},
    {R"({"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192, "rope_theta": 500000.0})",
     1,
     {1, 0.193922758, 0.0376060307, 0.00729266508, 0.000429556705, 8.57025589e-06, 1.66196742e-06,
      3.22293289e-07}},
    {R"({"rope_type": "llama3", "factor": 16.0, "low_freq_factor": 1.0, "high_freq_factor": 1.0, "original_max_position_embeddings": 8192, "rope_theta": 500000.0})",
     1,
     {1, 0.193922758, 0.0376060307, 0.00729266508, 0.00141421345, 1.71405118e-05, 3.32393483e-06,
      6.44586578e-07}},
    {R"({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024})",
     1.1386294361119891,
     {1, 0.316227764, 0.0812500045, 0.0197642371, 0.00437500002, 0.000790569466, 0.000250000012,
      7.90569466e-05}},
    {R"({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024, "truncate": false})",
     1.1386294361119891,
     {1, 0.316227764, 0.0853986368, 0.0191267766, 0.00355697144, 0.000790569466, 0.000250000012,
      7.90569466e-05}},
    {R"({"rope_type": "yarn", "factor": 16.0, "rope_theta": 1000000.0, "beta_fast": 20.0, "beta_slow": 2.0, "attention_factor": 0.75, "original_max_position_embeddings": 256})",
     0.75,
     {1, 0.0944710895, 0.00197642366, 0.000351463328, 6.2500003e-05, 1.11142463e-05, 1.97642339e-06,
      3.51463342e-07}},
    {R"({"rope_type": "yarn", "factor": 40.0, "mscale": 1.0, "mscale_all_dim": 0.8, "original_max_position_embeddings": 300})",
     1.0569662567531275,
     {1, 0.239147246, 0.0512499996, 0.0084986221, 0.000250000012, 7.90569466e-05, 2.49999994e-05,
      7.90569447e-06}},
    {R"({"rope_type": "yarn", "factor": 2.0, "mscale": 0.5})",
     1.0693147180559945,
     {1, 0.316227764, 0.100000001, 0.0276699308, 0.00749999983, 0.00197642366, 0.000500000024,
      0.000158113893}},
    {R"({"rope_type": "yarn", "factor": null, "original_max_position_embeddings": 500})",
     1.2103158068297153,
     {1, 0.246821314, 0.0561035164, 0.0108008459, 0.00122070312, 0.000386020227, 0.000122070312,
      3.8602022e-05}},
    {R"({"rope_type": "yarn", "factor": 4.0, "beta_fast": 1.0, "beta_slow": 1.0, "truncate": false, "original_max_position_embeddings": 1024})",
     1.1386294361119891,
     {1, 0.316227764, 0.100000001, 0.0316227786, 0.00999999978, 0.000790569466, 0.000250000012,
      7.90569466e-05}},
    {R"({"rope_type": "longrope", "short_factor": [1.0, 1.0625, 1.125, 1.1875, 1.25, 1.3125, 1.375, 1.4375], "long_factor": [1.0, 1.25, 2.0, 3.25, 5.0, 7.25, 10.0, 13.25], "original_max_position_embeddings": 1024})",
     1.0954451150103321,
     {1, 0.297626138, 0.088888891, 0.0266297068, 0.00800000038, 0.00240935455, 0.000727272709,
      0.000219984548}},
    {R"({"rope_type": "longrope", "short_factor": [1.0, 1.0625, 1.125, 1.1875, 1.25, 1.3125, 1.375, 1.4375], "long_factor": [1.0, 1.25, 2.0, 3.25, 5.0, 7.25, 10.0, 13.25], "original_max_position_embeddings": 20})",
     1.6662948592362368,
     {1, 0.252982229, 0.0500000007, 0.0097300848, 0.00200000009, 0.000436176255, 9.99999975e-05,
      2.38662469e-05}},
    {R"({"rope_type": "longrope", "short_factor": [1.0, 1.0625, 1.125, 1.1875, 1.25, 1.3125, 1.375, 1.4375], "long_factor": [1.0, 1.25, 2.0, 3.25, 5.0, 7.25, 10.0, 13.25], "original_max_position_embeddings": 512, "factor": 2.5})",
     1.070925253895868,
     {1, 0.297626138, 0.088888891, 0.0266297068, 0.00800000038, 0.00240935455, 0.000727272709,
      0.000219984548}},
    {R"({"rope_type": "longrope", "short_factor": [1.0, 1.0625, 1.125, 1.1875, 1.25, 1.3125, 1.375, 1.4375], "long_factor": [1.0, 1.25, 2.0, 3.25, 5.0, 7.25, 10.0, 13.25], "original_max_position_embeddings": 512, "attention_factor": 0.9})",
     0.90000000000000002,
     {1, 0.297626138, 0.088888891, 0.0266297068, 0.00800000038, 0.00240935455, 0.000727272709,
      0.000219984548}},
};

}  // namespace vocabpipe::testing

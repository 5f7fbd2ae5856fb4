#include "diffeo/layers/injective/free_form.h"

#include "diffeo/layers/base/registry.h"

namespace diffeo {
namespace {

dense::Shape shape_of(const FreeForm::NetShape& net) {
  return {.residual = net.type == "residual", .depth = net.depth, .activation = net.activation};
}

NetPtr build(const char* name, const FreeForm::NetShape& net, int64_t inputs, int64_t outputs) {
  return within(name, [&] {
    at_least(0, "depth", net.depth);
    dense::check_smooth(net.activation);
    const NetOptions options{
        .type = net.type, .width = net.width, .depth = net.depth, .activation = net.activation, .init_scale = 1};
    return build_net(options, inputs, 0, outputs);
  });
}

}  // namespace

FreeForm::FreeForm(const Options& options)
    : InjectiveLayer(at_least(2, "features", options.features), checked_latent(options.latent, options.features)),
      options_(options),
      encoder_shape_(shape_of(options.encoder)),
      decoder_shape_(shape_of(options.decoder)) {
  encoder_ = register_module("encoder", build("encoder", options.encoder, options.features, options.latent));
  decoder_ = register_module("decoder", build("decoder", options.decoder, options.latent, options.features));
}

Tensor FreeForm::forward_value(const Tensor& x, const Tensor&) { return encoder_->forward(x); }
Tensor FreeForm::inverse_value(const Tensor& y, const Tensor&) { return decoder_->forward(y); }

Pushed FreeForm::push_forward(const Tensor& x, const Tensor& tangents, const Tensor&) {
  const auto [value, carried] = dense::carry(encoder_shape_, x, tangents, encoder_->parameters());
  return {value, carried};
}

Pushed FreeForm::push_inverse(const Tensor& y, const Tensor& tangents, const Tensor&) {
  const auto [value, carried] = dense::carry(decoder_shape_, y, tangents, decoder_->parameters());
  return {value, carried};
}

FreeForm::RoundTrip FreeForm::round_trip(const Tensor& x, const Tensor& probes) {
  // Values first, since the encoder's tangents are what the decoder makes of the probes at the encoder's values.
  dense::Pass encoder(encoder_shape_, x, encoder_->parameters());
  dense::Pass decoder(decoder_shape_, encoder.value(), decoder_->parameters());
  const auto tangents = decoder.push(probes, false);
  if (!at::GradMode::is_enabled()) return {encoder.value(), decoder.value(), encoder.push(tangents, false)};
  encoder.push(tangents, true);
  const auto [latent, carried] = encoder.connect(x, tangents);
  return {latent, decoder.connect(latent, {}).value, carried};
}

DIFFEO_LAYER(free_form, FreeForm,
             "Free-form injective layer: an unconstrained encoder and decoder (Sorrenson et al. 2024).",
             "z = f(x), x = g(z); log_det = -1/2 log det g'(z)^T g'(z)",
             "forward: the encoder, and the decoder with d tangents, d^2 D + d^3; inverse: the decoder with d tangents",
             {"residual",
              {{"features", 4},
               {"latent", 2},
               {"encoder", {{"width", 8}, {"depth", 1}}},
               {"decoder", {{"width", 8}, {"depth", 2}}}}},
             {"mlp",
              {{"features", 3},
               {"latent", 1},
               {"encoder", {{"type", "mlp"}, {"width", 8}, {"activation", "tanh"}}},
               {"decoder", {{"type", "mlp"}, {"width", 8}, {"depth", 1}, {"activation", "softplus"}}}}},
             {"linear",
              {{"features", 3},
               {"latent", 2},
               {"encoder", {{"type", "mlp"}, {"depth", 0}}},
               {"decoder", {{"type", "mlp"}, {"depth", 0}}}}});

}  // namespace diffeo

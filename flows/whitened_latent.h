#pragma once

#include "diffeo/data/dataset.h"
#include "diffeo/flows/flow.h"

namespace diffeo {

/// Sets the last layer of a flow, a dense_linear, so that rows of data reach the latent space with mean 0 and
/// covariance 1: W = C^-1/2, b = -W m, with the mean m and the covariance C of what the other layers make of the rows,
/// whose weights count. One pass over the rows and D^3 once.
///
/// Before training it is a start for score matching, whose loss sees a direction the less the wider the data are in it,
/// and finds the scales of wide ones slowly. After training it is, over a standard normal base, the maximum of the
/// rows' likelihood over W and b with the other layers as they are: as for any normal, the optimum has their mean and
/// covariance, W^T W = C^-1. It takes back what score matching of noisy points has added to the width of the model, and
/// costs no determinant.
///
/// A direction in which the data do not vary is stretched a thousand times more than the widest, not without end.
///
/// Throws Error unless the flow ends in such a layer and at least two rows have weight.
void whiten_latent(Flow& flow, BatchStream& rows);

/// Throws Error unless the flow ends in a dense_linear, so that whiten_latent can set it.
void check_can_whiten(const Flow& flow);

}  // namespace diffeo

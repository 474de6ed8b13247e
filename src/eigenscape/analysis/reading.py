"""How to read each picture, in words that a newcomer understands."""

READING = {
    "top_eigenvalues": (
        "Each mark is an eigenvalue of the Hessian (the curvature of the loss along one direction) or of the "
        "Gauss-Newton matrix (the part of it that does not depend on how the network itself bends); the bar through it is the "
        "interval that surely holds an eigenvalue, often smaller than the mark. Gradient descent on a quadratic becomes "
        "unstable where the largest eigenvalue exceeds 2 / learning rate."
    ),
    "density": (
        "Left: how the eigenvalues are distributed along the real line, on a logarithmic height; the tall peak at zero "
        "is the bulk of directions in which the loss hardly bends, the small peaks to its right are single outliers, "
        "and triangles mark the eigenvalues found one by one. Right: the same by order of magnitude, positive and "
        "negative by themselves; near zero the peaks show how finely the steps resolve the spectrum, not separate "
        "groups of eigenvalues."
    ),
    "cumulative": (
        "The curve rises from 0 to 100 % as the eigenvalue axis is crossed from left to right; its height at 0 is the "
        "share of directions of negative or vanishing curvature. At each point the band holds the true share with 95 % "
        "probability; where it is wide, the measurement cannot tell."
    ),
    "layers": (
        "One row for each parameter tensor: the spectrum of its own diagonal block of the Hessian, by order of "
        "magnitude, positive upwards and negative downwards. Heights are logarithmic, so that single outliers show; "
        "rows that reach further right are the layers that limit the step size."
    ),
}
